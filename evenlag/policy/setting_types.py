"""Types of single settings: assignors, cron expressions, paths, and kafka-python's settings."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Tag

from evenlag.policy.portable_settings import CommonMethods, unpack
from evenlag.policy.secrets import SecretRef

_CRON_FORM: Final = r"@[a-z]+|[\w*/,#?-]+(?:\s+[\w*/,#?-]+){4,5}"


class SettingsModel(CommonMethods, BaseModel):
    """Immutable settings. Unknown keys and numbers that are not finite are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_enum_values=False, allow_inf_nan=False)

    def values(self) -> dict[str, Any]:
        """Return the settings by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def changed(self, **values: Any) -> Self:
        """Return a copy of the settings with some values changed, without validation.

        Parameters
        ----------
        **values
            New values by name; they must be valid.
        """
        return self.model_copy(update=values)

    def __reduce__(self) -> tuple[Any, ...]:
        # Executors, which may unpickle it, have no pydantic.
        return unpack, ("PortableSettings", self.values())


def known_assignor(name: str) -> str:
    """Check that an assignor exists.

    Parameters
    ----------
    name
        Name of the assignor.

    Returns
    -------
    str
        The name.

    Raises
    ------
    ValueError
        If it does not exist; the message lists the known assignors.
    """
    from assignor_core.assignors import find_assignor
    from assignor_core.errors import UnknownAssignorError

    try:
        return find_assignor(name).name
    except UnknownAssignorError as error:
        raise ValueError(str(error)) from error


def uses_load(assignor: str) -> bool:
    """Return whether an assignor balances a load that the policy chooses.

    Parameters
    ----------
    assignor
        Name of the assignor.
    """
    from assignor_core.assignors import find_assignor

    return find_assignor(assignor).uses_load


def cron_expression(value: str) -> str:
    """Check the form of a cron expression. Airflow validates extensions beyond five fields itself.

    Parameters
    ----------
    value
        The expression.

    Returns
    -------
    str
        The same expression.

    Raises
    ------
    ValueError
        If it is not a cron expression.
    """
    if re.fullmatch(_CRON_FORM, value.strip()) is None:
        raise ValueError(
            f"{value!r:.60} is no cron expression: write five fields, e.g. '*/5 * * * *', or null"
        )
    return value


def path_text(value: str) -> str:
    """Check that a text can be a path or a URI.

    Parameters
    ----------
    value
        The text.

    Returns
    -------
    str
        The same text.

    Raises
    ------
    ValueError
        If it contains a control character.
    """
    if not value.isprintable():
        raise ValueError(f"{value!r:.60} is no path or URI: it has a character that none can have")
    return value


def one_or_many(value: Any) -> Any:
    """Split a text at its commas; a list is returned unchanged.

    Parameters
    ----------
    value
        A text or a list.

    Returns
    -------
    Any
        The list.
    """
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


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
