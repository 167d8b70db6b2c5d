"""ACLs of evenlag's principal: which one is missing, and the command that grants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from evenlag.errors import KafkaAuthorizationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OPERATION_NAMES: Final = {
    "READ": "Read",
    "WRITE": "Write",
    "CREATE": "Create",
    "DESCRIBE": "Describe",
    "DESCRIBE_CONFIGS": "DescribeConfigs",
}
_UNKNOWN: Final = "User:NAME-OF-EVENLAG"


@dataclass(frozen=True, slots=True)
class Grants:
    """Builds the ``kafka-acls`` command that grants missing operations."""

    servers: tuple[str, ...]
    principal: str

    @classmethod
    def of(cls, servers: Sequence[str], settings: Mapping[str, Any]) -> Self:
        """Return the commands for who connects with these settings, as far as they show it."""
        user = settings.get("sasl_plain_username")
        is_anonymous = not user and not settings.get("ssl_certfile") and not settings.get("sasl_mechanism")
        return cls(tuple(servers), f"User:{user}" if user else "User:ANONYMOUS" if is_anonymous else _UNKNOWN)

    def line(self, operations: tuple[str, ...], resource: str) -> str:
        """Return the command for operations, named as in Kafka's ``AclOperation``, on a resource."""
        wanted = " ".join(f"--operation {OPERATION_NAMES[operation]}" for operation in operations)
        return (
            f"kafka-acls.sh --bootstrap-server {','.join(self.servers)} --add "
            f"--allow-principal '{self.principal}' {wanted} {resource}"
        )

    def missing_describe(self, name: str, resource: str) -> KafkaAuthorizationError:
        """Return the error that ``Describe`` is missing."""
        return KafkaAuthorizationError(
            f"{self.principal} lacks the ACL Describe on {name}",
            remedy=self.line(("DESCRIBE",), resource),
        )
