"""References to secrets: a policy names where a secret is stored, never the secret.

A reference is resolved when a Kafka connection is opened or a hint is signed, in the process that does it. A
resolved secret is never put into settings, argument lists, Spark's configuration or messages.
"""

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, model_validator

from evenlag.errors import SecretError
from evenlag.formatting import did_you_mean
from evenlag.redaction import remember_secret

# A key of fewer bytes can be found by trying, from one signed hint or one hashed host.
MIN_KEY_BYTES: Final = 32
# What a policy may refer to is the deployment's decision: whoever writes a policy could send any file or
# variable of the process to a broker of their own.
ALLOWED_VARIABLE: Final = "EVENLAG_SECRETS"
_ALLOWED: Final = "EVENLAG_*, /run/secrets, /etc/evenlag"
_FORM: Final = "given as {env: NAME} or as {file: PATH}, exactly one of them"


class SecretRef(BaseModel):
    """Location of a secret: an environment variable (``env``) or a file (``file``), exactly one of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _exactly_one(cls, value: Any) -> Any:
        """Report an error once, and never the value: it may be the secret."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict):
            raise ValueError(f"must be a secret: {_FORM}")  # noqa: TRY004  # pydantic needs a ValueError
        for key in value:
            if key not in cls.model_fields:
                hint = did_you_mean(str(key), cls.model_fields) or f"; {_FORM}"
                raise ValueError(f"has no key {str(key)[:60]!r}{hint}")
        given = [key for key, part in value.items() if part is not None]
        if len(given) != 1:
            raise ValueError(f"a secret is {_FORM}")
        part = value[given[0]]
        if not (isinstance(part, Path) or (isinstance(part, str) and part and "\0" not in part)):
            raise ValueError(f"{given[0]} must be text, and not empty")
        return value

    def require_allowed(self) -> None:
        """Check that the deployment allows a policy to refer to this place."""
        listed = os.environ.get(ALLOWED_VARIABLE) or _ALLOWED
        allowed = [part.strip() for part in listed.split(",")]
        if self.env is not None:
            if any(fnmatchcase(self.env, part) for part in allowed if not part.startswith("/")):
                return
        else:
            # Links are followed, so that none leads out of the folder.
            real = Path(self.file or "").resolve()
            if any(real.is_relative_to(Path(part).resolve()) for part in allowed if part.startswith("/")):
                return
        raise SecretError(
            f"a policy may not refer to {self._place}, only to {listed}",
            remedy=f"move it, or list its name or folder in the variable {ALLOWED_VARIABLE} of this process",
        )

    def resolve(self) -> str:
        """Read the secret that a policy refers to; from then on it is masked in all log records."""
        self.require_allowed()
        return self.read()

    def read(self) -> str:
        """Read the secret as :meth:`resolve`, wherever it is: the deployment itself names the place."""
        value = self._read()
        remember_secret(value)
        return value

    def resolve_key(self) -> bytes:
        """Read a secret that is the key of an HMAC, as UTF-8."""
        key = self.resolve().encode()
        if len(key) < MIN_KEY_BYTES:
            raise SecretError(
                f"the key in {self._place} has {len(key)} bytes: give at least {MIN_KEY_BYTES}, e.g. of "
                "'openssl rand -base64 32'"
            )
        return key

    @property
    def _place(self) -> str:
        return f"the file {self.file}" if self.env is None else f"the environment variable {self.env}"

    def _read(self) -> str:
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise SecretError(f"{self._place} is not set: the policy refers to it")
            return value
        path = self.file if self.file is not None else Path()
        try:
            value = path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise SecretError(f"the secret file {path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            # Its message would contain the content of the file.
            raise SecretError(f"the secret file {path} cannot be read: it is not UTF-8") from None
        if not value:
            raise SecretError(f"the secret file {path} is empty")
        return value


def read_token(variable: str, file_variable: str) -> tuple[str, str] | None:
    """Return a token of a variable, or of the file that another one names, after which of them has it."""
    if os.environ.get(variable):
        return variable, SecretRef(env=variable).read().strip()
    file = os.environ.get(file_variable)
    return (file_variable, SecretRef(file=Path(file)).read().strip()) if file else None
