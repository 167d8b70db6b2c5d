"""Patterns that name groups and members: exact names, globs, and regular expressions of RE2.

Spark executors use them, so nothing but google-re2 is imported, and only where a pattern is an expression.
"""

import fnmatch
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any


def matches_pattern(pattern: str, name: str) -> bool:
    """Check whether a name matches a pattern."""
    if is_expression(pattern):
        return compile_expression(pattern[1:-1]).fullmatch(name) is not None
    return fnmatch.fnmatchcase(name, pattern)


def covers_pattern(first: str, second: str) -> bool:
    """Whether the first pattern matches each name that the second matches, as far as the texts show.

    An expression covers itself and names; a glob is compared with the second by what its wildcards may be.

    >>> covers_pattern("pay*", "payments-*"), covers_pattern("pay?", "pay*"), covers_pattern("*-eu", "*-us")
    (True, False, False)
    """
    if first == second or first in ("*", "/.*/"):
        return True
    if is_expression(second) or (is_expression(first) and set("*?[") & set(second)):
        return False
    return all(matches_pattern(first, name) for name in _examples(second))


def _examples(glob: str) -> Iterator[str]:
    """Names that a glob matches: each `*` as nothing and as unlikely letters, each `?` and set as one."""
    for letters in ("", "\ue000", "\ue000\ue001\ue000"):
        yield re.sub(r"\[.[^]]*\]|\?", "\ue002", glob).replace("*", letters)


def check_pattern(pattern: str) -> str:
    """Check that a pattern is valid."""
    if is_expression(pattern):
        try:
            compile_expression(pattern[1:-1])
        except UnicodeEncodeError as error:
            raise ValueError(f"{pattern!r} is not a regular expression: it is no text") from error
        except ValueError as error:
            raise ValueError(f"{pattern} is not a regular expression: {error}") from error
    return pattern


@lru_cache(maxsize=256)
def compile_expression(expression: str) -> Any:
    """Compile for RE2, which takes a time linear in the name: names are chosen by any client.

    An expression such as ``(a+)+b`` took 13 s of Python's engine on a name of 31 characters.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from None


def is_expression(pattern: str) -> bool:
    """Whether a pattern is a regular expression between slashes."""
    return len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")
