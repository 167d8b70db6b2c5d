"""Names made safe for a terminal, a log line, a page, a Markdown text and a cell of a spreadsheet.

Names of groups, topics, members, clients and hosts, and the reasons that contain them, come from any client
that may connect to the cluster: they are hostile input wherever they are printed.
"""

import re
from html import escape
from typing import Final

# The categories Cc, Cf, Cs, Co, Zl and Zp of Unicode: what a terminal or a page interprets, hides, or shows
# in another order. A test compares the ranges with the interpreter's own tables.
_UNPRINTABLE: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u180e\\u200b-\\u200f"
    "\\u2028-\\u202e\\u2060-\\u206f\\ud800-\\uf8ff\\ufeff\\ufff9-\\ufffb\\U000110bd\\U000110cd"
    "\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e007f"
    "\\U000f0000-\\U0010ffff]"
)
_UNPRINTABLE_BUT_LINES: Final = re.compile(
    _UNPRINTABLE.pattern.replace("\\x00-\\x1f", "\\x00-\\x08\\x0b-\\x1f")
)
_PAGE_UNSAFE: Final = re.compile(f"[&<>\"']|{_UNPRINTABLE_BUT_LINES.pattern}")
# How a formula begins, in both widths. Where cells are separated by semicolons, one may begin within a text.
_FORMULA: Final = re.compile("(^|;)([\\s'\"]*[=+\\-@\uff1d\uff0b\uff0d\uff20])")
# What GitHub's Markdown gives a meaning to, and what it makes a link of without any mark.
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()<>#+.!|~$&-])")
_AUTOLINK: Final = re.compile(r"://|www\.|@|mailto:|xmpp:", re.IGNORECASE)
_INDENT: Final = "    "
_NEW_LINE: Final = re.compile(f"\n(?!{_INDENT})")


def printable(text: str) -> str:
    r"""Replace control characters, invisible ones, and marks of text direction by their Python escapes.

    Examples
    --------
    >>> printable("pay" + chr(27) + "[2J" + chr(10) + "roll")
    'pay\\x1b[2J\\nroll'
    """
    return _UNPRINTABLE.sub(_escaped, text)


def label_text(text: str) -> str:
    r"""Make the value of a Prometheus label: as :func:`printable`, with two backslashes for one.

    Two names never give the same value: Prometheus refuses all metrics if two of them have equal labels.

    Examples
    --------
    >>> label_text("a" + chr(10)), label_text(r"a\n")
    ('a\\n', 'a\\\\n')
    """
    return printable(text.replace("\\", r"\\"))


def printable_lines(text: str) -> str:
    r"""Escape as :func:`printable` does, but keep line feeds and tabulators.

    Examples
    --------
    >>> printable_lines("a" + chr(10) + "b" + chr(27) + "[m")
    'a\nb\\x1b[m'
    """
    return _UNPRINTABLE_BUT_LINES.sub(_escaped, text)


def log_text(text: str) -> str:
    r"""Make a message safe for a log of lines; one that is safe stays as it is.

    Lines after the first are indented: none can be taken for a record of its own.

    Examples
    --------
    >>> log_text("no group a" + chr(10) + "2026-01-01 INFO forged")
    'no group a\n    2026-01-01 INFO forged'
    """
    return _NEW_LINE.sub(f"\n{_INDENT}", printable_lines(text))


def page_text(text: str) -> str:
    r"""Make a text safe for a page: its markup is shown, and nothing invisible is in it.

    Examples
    --------
    >>> page_text("<b>" + chr(0x202E))
    '&lt;b&gt;\\u202e'
    """
    # Most texts are safe, and a page has hundreds of thousands.
    return text if _PAGE_UNSAFE.search(text) is None else escape(printable_lines(text))


def markdown_text(text: str) -> str:
    r"""Make a text safe for Markdown, also in a table: one line, no markup, no link, nothing invisible.

    Where a renderer would make a link of a part of it, it is a code span, with ``|`` as its escape, because
    no character can be escaped there.

    Examples
    --------
    >>> markdown_text("pay_roll"), markdown_text("http://x.test/a|b")
    ('pay\\_roll', '` http://x.test/a\\x7cb `')
    """
    shown = printable(text)
    if _AUTOLINK.search(shown) is None:
        return _MARKDOWN.sub(r"\\\1", shown)
    runs = re.findall("`+", shown)
    fence = "`" * (max(map(len, runs), default=0) + 1)
    shown = shown.replace("|", r"\x7c")
    return f"{fence} {shown} {fence}"


def cell_text(text: str) -> str:
    """Make a text safe for a cell of a spreadsheet: one line, with an apostrophe in front of a formula.

    Examples
    --------
    >>> cell_text("=1+1"), cell_text("orders;=1+1"), cell_text("a-b")
    ("'=1+1", "orders;'=1+1", 'a-b')
    """
    return _FORMULA.sub(r"\1'\2", printable(text))


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
