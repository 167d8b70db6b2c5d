"""Types of options and arguments: an invalid value is refused before any work, with one line.

Each function that takes only a text is a ``parser`` of Typer, or makes one: it returns the value, or raises
``typer.BadParameter``, which the command reports with exit code 2.
"""

import os
import string
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import typer

from evenlag.enums import check_reset_policy
from evenlag.name_patterns import check_pattern

T = TypeVar("T")
# Moments and days outside these years are typing errors. Their arithmetic overflows near the ends of the
# calendar.
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2999
MAX_HOURS: Final = 876_000
MAX_DAYS: Final = 36_500
MAX_ROWS: Final = 10_000_000
MAX_GAP_S: Final = 31_622_400
# The longest part of a path, and the longest path, that Linux accepts.
_MAX_NAME_BYTES: Final = 255
_MAX_PATH_BYTES: Final = 4_095
_SHOWN: Final = 60
_PLAN_ID_DIGITS: Final = 64


def shown(text: object) -> str:
    """Return the ``repr`` of a value for a message: on one line, of at most 60 characters."""
    quoted = repr(str(text)).encode("utf-8", "backslashreplace").decode()
    return quoted if len(quoted) <= _SHOWN else f"{quoted[:_SHOWN]}…"


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers."""
    return _within(int, low, high, "whole number", f"{low:,} to {high:,}")


def real(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of finite numbers."""
    return _within(float, low, high, "number", f"{low:,g} to {high:,.10g}")


def _within(kind: Callable[[str], T], low: Any, high: Any, what: str, bounds: str) -> Callable[[str], T]:
    def parse(text: str) -> T:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{shown(text)} is no {what}: give one from {bounds}") from None
        if not low <= value <= high:
            raise typer.BadParameter(f"{shown(text)} lies outside {bounds}")
        return value

    return parse


def moment(text: str) -> datetime:
    """Parse a moment in ISO 8601; UTC if it has no offset."""
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{shown(text)} is no moment: write e.g. 2026-11-21T13:05, in UTC") from None
    _check_year(text, at.year)
    return at


def day(text: str) -> date:
    """Parse a day in ISO 8601."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{shown(text)} is no day: write e.g. 2026-03-01") from None
    _check_year(text, found.year)
    return found


def _check_year(text: str, year: int) -> None:
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise typer.BadParameter(f"{shown(text)} lies outside the years {FIRST_YEAR} to {LAST_YEAR}")


def name(text: str) -> str:
    """Check a name and return it unchanged; Kafka allows nearly any text as a group id."""
    if not text:
        raise typer.BadParameter("a name must not be empty: give one, or leave the option out")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{shown(text)} is not UTF-8") from None
    if "\0" in text:
        raise typer.BadParameter(f"{shown(text)} contains a NUL character")
    return text


def plan_id(text: str) -> str:
    """Check the id of a plan, or its first characters: 1 to 64 hexadecimal digits."""
    if not 0 < len(text) <= _PLAN_ID_DIGITS or set(text) - set(string.hexdigits):
        raise typer.BadParameter(
            f"{shown(text)} is no plan: its id is {_PLAN_ID_DIGITS} hexadecimal digits, the first will do"
        )
    return text.lower()


def reset_policy(text: str) -> str:
    """Check a reset policy and return it unchanged."""
    return _checked(lambda: str(check_reset_policy(name(text))))


def pattern(text: str) -> str:
    """Check a pattern of groups (a name, a glob or ``/regex/``), and return it unchanged."""
    return _checked(lambda: check_pattern(name(text)))


def _checked(check: Callable[[], T]) -> T:
    try:
        return check()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def path(text: str | Path) -> Path:
    """Check a path; it need not exist."""
    name = str(text)
    if not name:
        raise typer.BadParameter("a path must not be empty: give one, or leave the option out")
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{shown(name)} is no path: it is not UTF-8") from None
    if b"\0" in encoded:
        raise typer.BadParameter(f"{shown(name)} is no path: it contains a NUL character")
    if len(encoded) > _MAX_PATH_BYTES or max(map(len, encoded.split(b"/"))) > _MAX_NAME_BYTES:
        raise typer.BadParameter(f"{shown(name)} is no path: it is too long")
    return Path(name)


def lake_root(text: str) -> str:
    """Check the root of a lake, a path or a URI, and return it unchanged."""
    path(name(text))
    return text


def servers(text: str) -> str:
    """Check brokers, as ``host:port`` separated by commas, and return the text unchanged."""
    from evenlag.policy.kafka_settings import check_server

    _checked(lambda: [check_server(part.strip()) for part in name(text).split(",")])
    return text


def url(text: str) -> str:
    """Check a URL that begins with ``http://`` or ``https://`` and names a host; return it unchanged."""
    try:
        parts = urlsplit(name(text))
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not text.isprintable() or " " in text:
        raise typer.BadParameter(f"{shown(text)} is no URL: write e.g. http://127.0.0.1:8080")
    return text


def check_folder_of(file: Path) -> Path:
    """Check that a file can be created, before the command does work whose result it could not write."""
    try:
        if file.is_dir():
            raise typer.BadParameter(f"{shown(file)} is a folder: name a file in it")
        if not file.parent.is_dir():
            raise typer.BadParameter(f"the folder {shown(file.parent)} does not exist: create it first")
    except OSError as error:
        raise typer.BadParameter(f"{shown(file)} cannot be written: {error.strerror}") from None
    return file


def option(
    flags: str, metavar: str, help_text: str, parser: Callable[[str], Any] = name, **settings: Any
) -> Any:
    """Declare an option that takes a value; `flags` are separated by spaces."""
    return typer.Option(*flags.split(), parser=parser, metavar=metavar, help=help_text, **settings)


def argument(metavar: str, help_text: str, parser: Callable[[str], Any] = name, **settings: Any) -> Any:
    """Declare an argument."""
    return typer.Argument(parser=parser, metavar=metavar, help=help_text, **settings)


def flag(flags: str, help_text: str) -> Any:
    """Declare an option that takes no value."""
    return typer.Option(*flags.split(), help=help_text)
