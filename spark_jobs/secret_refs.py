"""References to secrets: a policy names where a secret is, never the secret.

A reference is resolved at the moment a Kafka connection is made or a hint is signed, in the process that
does it. What is resolved is never put into settings, argument lists, Spark's configuration or messages.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator

from spark_jobs.errors import SecretError
from spark_jobs.redaction import remember_secret


class SecretRef(BaseModel):
    """Where a secret is: an environment variable (``env``) or a file (``file``), exactly one of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> SecretRef:
        if (self.env is None) == (self.file is None):
            raise ValueError("a secret is given as {env: NAME} or as {file: PATH}, exactly one of them")
        return self

    def resolve(self) -> str:
        """Read the secret; from then on no log record shows it.

        Returns
        -------
        str
            The value; of a file its text without the newline at the end.

        Raises
        ------
        SecretError
            When the variable is not set, or the file is missing, unreadable or empty.
        """
        value = self._read()
        remember_secret(value)
        return value

    def _read(self) -> str:
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise SecretError(f"the environment variable {self.env} is not set: the policy refers to it")
            return value
        path = self.file if self.file is not None else Path()
        try:
            value = path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise SecretError(f"the secret file {path} cannot be read: {error.strerror}") from error
        if not value:
            raise SecretError(f"the secret file {path} is empty")
        return value
