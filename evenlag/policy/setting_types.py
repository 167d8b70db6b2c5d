"""Types of single settings: assignors, cron expressions, paths, approvers, and kafka-python's settings."""

import math
from functools import partial
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    WithJsonSchema,
)

from evenlag.enums import ResetPolicy, check_reset_policy
from evenlag.policy.cron import check_expression
from evenlag.policy.portable_settings import CommonMethods, PortableSettings
from evenlag.policy.secrets import SecretRef

# Before the name of an approver who is an account of the operating system, not a user of Airflow.
ACCOUNT_PREFIX: Final = "account:"


class SettingsModel(CommonMethods, BaseModel):
    """Immutable settings. Unknown keys and numbers that are not finite are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_enum_values=False, allow_inf_nan=False)

    def values(self) -> dict[str, Any]:
        """Return the settings by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def changed(self, **values: Any) -> Self:
        """Return a copy of the settings with some values changed, without validation."""
        return self.model_copy(update=values)

    def __reduce__(self) -> tuple[Any, ...]:
        # Executors, which may unpickle it, have no pydantic.
        return partial(PortableSettings, **self.values()), ()


def setting(default: Any, description: str, **limits: Any) -> Any:
    """Declare a setting: its default, what it is, and its limits as pydantic names them."""
    return Field(default=default, description=description, **limits)


def _reset_policy(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be earliest, latest or by_duration:PnDTnHnMnS")  # noqa: TRY004  # pydantic's
    return check_reset_policy(value)


ResetSetting = Annotated[
    str,
    PlainValidator(_reset_policy),
    PlainSerializer(str),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [policy.value for policy in ResetPolicy], "type": "string"},
                {"pattern": "^by_duration:[Pp]", "type": "string"},
            ]
        }
    ),
]
"""``auto.offset.reset`` of a group's consumers: a `ResetPolicy`, or ``by_duration:…`` as plain text."""


def known_assignor(name: str) -> str:
    """Check that an assignor exists; one of another package is not loaded."""
    from assignor_core.assignors import check_assignor
    from assignor_core.errors import UnknownAssignorError

    try:
        check_assignor(name)
    except UnknownAssignorError as error:
        raise ValueError(str(error)) from error
    return name


def uses_load(assignor: str) -> bool:
    """Return whether an assignor balances a load that the policy chooses."""
    from assignor_core.assignors import find_assignor
    from assignor_core.errors import ForeignAssignorError

    try:
        return find_assignor(assignor).uses_load
    except ForeignAssignorError:
        # The policy stands: only the assignor's own groups are not planned.
        return True


def cron_expression(value: str) -> str:
    """Check that Airflow takes a cron expression, without spaces around it."""
    value = value.strip()
    try:
        check_expression(value)
    except ValueError as error:
        raise ValueError(
            f"{value!r:.60} is no cron expression: {error}; write five fields, e.g. '*/5 * * * *', or null"
        ) from None
    return value


Schedule = Annotated[str, AfterValidator(cron_expression)] | None
"""A cron expression; None: manual runs only."""


def path_text(value: str) -> str:
    """Check that a text can be a path or a URI."""
    if not value.isprintable():
        raise ValueError(f"{value!r:.60} is no path or URI: it has a character that none can have")
    return value


def one_or_many(value: Any) -> Any:
    """Split a text at its commas; a list is returned unchanged."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def approver(value: str) -> str:
    """Check that a text can name an approver."""
    name = value.removeprefix(ACCOUNT_PREFIX)
    if not name or name != name.strip() or value != value.strip() or not value.isprintable():
        raise ValueError(
            f"{value!r:.60} is no approver: write the id of a user of Airflow, or {ACCOUNT_PREFIX}NAME for "
            "an account that runs the command"
        )
    return value


# One or several: as a list, or separated by commas.
Approvers = Annotated[
    tuple[Annotated[str, AfterValidator(approver)], ...], BeforeValidator(one_or_many), Field(min_length=1)
]

_SECRET, _PLAIN = KAFKA_SETTING_KINDS = ("a secret", "a plain value")


def _kind_of_setting(value: Any) -> str:
    return _SECRET if isinstance(value, (dict, SecretRef)) else _PLAIN


def _plain_setting(value: Any) -> Any:
    if isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(
        "must be text, a finite number, true or false, or a secret as {env: NAME} or {file: PATH}"
    )


# Distinguished before validation: an error in a secret is not reported as an error in four other types too.
KafkaSetting = Annotated[
    Annotated[SecretRef, Tag(_SECRET)]
    | Annotated[bool | int | float | str, BeforeValidator(_plain_setting), Tag(_PLAIN)],
    Discriminator(_kind_of_setting),
]
