"""Hostile names, as any client of a cluster may choose them, and what must not be left of them."""

from __future__ import annotations

import random
import sys
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_BAD_CATEGORIES: Final = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
PARTS: Final = (
    "orders", "é", "日本", "\x1b[2J", "\x1b]8;;http://x\x1b\\", "\x9b31m", "\r", "\n", "\t", "\0", "\x7f",
    "\u202e", "\u2066", "\u200b", "\ufeff", "\u061c", "\ud800", "\U000e0041", "[/x]", "[link=http://x]",
    "[bold]", ":bomb:", "<script>x()</script>", '"><img src=x onerror=x()>', "'", '"', "&lt;", "=1+1", "+1",
    "-1", "@x", "\uff1d1", ";=cmd", ",=1", " =1", "{0}", "%s", "%(a)s", "$x$", "\\", "$\\frac{", "#010101",
    "2026-01-01 INFO evenlag: forged", "`", "``", "|", "~~", "**", "](javascript:x())", "![a](http://x/a.png)",
    "http://x.test/", "www.x.test", "a@x.test", "</svg><script>x()</script>", "javascript:x()", ' id="x"',
    "<!--", "-->", "]]>", "{{ 7 * 7 }}", "{% raw %}",
)  # fmt: skip


def hostile_names(count: int, seed: int) -> Iterator[str]:
    """Return names of one to five hostile parts, and of characters from all of Unicode."""
    chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
    for _ in range(count):
        parts = chance.choices(PARTS, k=chance.randint(1, 5))
        if chance.random() < 0.5:
            parts.insert(chance.randint(0, len(parts)), chr(chance.randrange(sys.maxunicode + 1)))
        yield "".join(parts)


def kafka_names(count: int, seed: int) -> list[str]:
    """Return hostile names that Kafka can have: in UTF-8, so without half of a surrogate pair."""
    return [
        name for name in hostile_names(count, seed) if not any("\ud800" <= sign <= "\udfff" for sign in name)
    ]


def is_bad(sign: str) -> bool:
    """Return whether a character is invisible or a control character, by the interpreter's own tables."""
    return unicodedata.category(sign) in _BAD_CATEGORIES


def is_clean(text: str, allowed: str = "") -> bool:
    """Return whether no character of a text is bad."""
    return not any(is_bad(sign) and sign not in allowed for sign in set(text))
