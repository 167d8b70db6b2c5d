"""Types of options and arguments: what no command can use is refused before any work, in one line.

Each function is a `parser` of Typer: text in, value out, ``typer.BadParameter`` for a mistake.
"""

from __future__ import annotations

import math
import os
import string
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

# Moments and days outside these years are typing errors, and their arithmetic overflows near the ends of the
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
    """A value as a message shows it: on one line, in quotes, not at any length."""
    quoted = repr(str(text)).encode("utf-8", "backslashreplace").decode()
    return quoted if len(quoted) <= _SHOWN else f"{quoted[:_SHOWN]}…"


def whole(low: int, high: int) -> Callable[[str], int]:
    """Make a parser of whole numbers from `low` to `high`."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise typer.BadParameter(
                f"{shown(text)} is no whole number: give one from {low:,} to {high:,}"
            ) from None
        if not low <= value <= high:
            raise typer.BadParameter(f"{shown(text)} lies outside {low:,} to {high:,}")
        return value

    return integer


def real(low: float, high: float, *, below: bool = False) -> Callable[[str], float]:
    """Make a parser of finite numbers from `low` to `high`, or to below it."""
    bounds = f"{low:,g} to {'below ' if below else ''}{high:,.10g}"

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise typer.BadParameter(f"{shown(text)} is no number: give one from {bounds}") from None
        if not math.isfinite(value) or not low <= value <= high or (below and value == high):
            raise typer.BadParameter(f"{shown(text)} lies outside {bounds}")
        return value

    return number


def moment(text: str) -> datetime:
    """A moment by ISO 8601, in UTC; without an offset it is UTC."""
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{shown(text)} is no moment: write e.g. 2026-11-21T13:05, in UTC") from None
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise typer.BadParameter(f"{shown(text)} lies outside the years {FIRST_YEAR} to {LAST_YEAR}")
    return at


def day(text: str) -> date:
    """A day by ISO 8601."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{shown(text)} is no day: write e.g. 2026-03-01") from None
    if not FIRST_YEAR <= found.year <= LAST_YEAR:
        raise typer.BadParameter(f"{shown(text)} lies outside the years {FIRST_YEAR} to {LAST_YEAR}")
    return found


def name(text: str) -> str:
    """A name, e.g. of a group, a cluster or a topic: any text but none at all."""
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
    """The id of a plan, or its first characters."""
    if not 0 < len(text) <= _PLAN_ID_DIGITS or set(text) - set(string.hexdigits):
        raise typer.BadParameter(
            f"{shown(text)} is no plan: its id is {_PLAN_ID_DIGITS} hexadecimal digits, the first will do"
        )
    return text.lower()


def pattern(text: str) -> str:
    """A pattern of groups: a name, a glob, or a regular expression between slashes."""
    from evenlag.enums import check_pattern

    try:
        return check_pattern(name(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def path(text: str | Path) -> Path:
    """A path that the file system can take."""
    told = str(text)
    if not told:
        raise typer.BadParameter("a path must not be empty: give one, or leave the option out")
    try:
        encoded = os.fsencode(told)
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{shown(told)} is no path: it is not UTF-8") from None
    if b"\0" in encoded:
        raise typer.BadParameter(f"{shown(told)} is no path: it contains a NUL character")
    if len(encoded) > _MAX_PATH_BYTES or max(map(len, encoded.split(b"/"))) > _MAX_NAME_BYTES:
        raise typer.BadParameter(f"{shown(told)} is no path: it is too long")
    return Path(told)


def lake_root(text: str) -> str:
    """Root of a lake: a path, or a URI."""
    path(name(text))
    return text


def servers(text: str) -> str:
    """Brokers as host:port, separated by commas."""
    from evenlag.policy.bootstrap_servers import check_server

    try:
        for part in name(text).split(","):
            check_server(part.strip())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def url(text: str) -> str:
    """An address that begins with http:// or https:// and names a host."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(name(text))
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not text.isprintable() or " " in text:
        raise typer.BadParameter(f"{shown(text)} is no URL: write e.g. http://127.0.0.1:8080")
    return text


def check_folder_of(file: Path) -> Path:
    """Refuse a file to be written whose folder does not exist, or that is a folder.

    Raises
    ------
    typer.BadParameter
        Then; before the work whose answer could not be written.
    """
    try:
        if file.is_dir():
            raise typer.BadParameter(f"{shown(file)} is a folder: name a file in it")
        if not file.parent.is_dir():
            raise typer.BadParameter(f"the folder {shown(file.parent)} does not exist: create it first")
    except OSError as error:
        raise typer.BadParameter(f"{shown(file)} cannot be written: {error.strerror}") from None
    return file
