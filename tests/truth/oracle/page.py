"""Parses the report's page: its tables, headline, captions, notes, legends and times."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

_KEPT: Final = frozenset(
    {"figcaption", "caption", "h1", "h2", "h3", "summary", "th", "td", "li", "b", "time"}
)


@dataclass(slots=True)
class PageTable:
    """A table of the page, as text."""

    caption: str = ""
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


@dataclass(slots=True)
class ReportPage:
    """Content of the page.

    headline: The large numbers, each with its label.
    captions, notes, summaries: Captions of charts, remarks, and headings of collapsed sections.
    labels: Text alternatives of the charts.
    times: Times, both machine-readable and as displayed.
    verdict, verdict_kind: The first line, and its CSS class.
    """

    title: str = ""
    headline: list[tuple[str, str]] = field(default_factory=list)
    tables: dict[str, PageTable] = field(default_factory=dict)
    captions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    times: list[tuple[str, str]] = field(default_factory=list)
    period: str = ""
    verdict: str = ""
    verdict_kind: str = ""


def parse_page(html: str) -> ReportPage:
    """Return the content of a page."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.page


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = ReportPage()
        self._texts: list[tuple[str, list[str]]] = []
        self._table: PageTable | None = None
        self._is_in_head = False
        self._headline = 0
        self._machine_time = ""
        self._depth_of_svg = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        if tag == "svg":
            self._depth_of_svg += 1
            if known.get("aria-label"):
                self.page.labels.append(known["aria-label"])
        if self._depth_of_svg:
            return
        classes = known.get("class", "").split()
        self._open(tag)
        if tag == "ul" and "numbers" in classes:
            self._headline = 1
        elif tag == "time":
            self._machine_time = known.get("datetime", "")
        if tag in _KEPT:
            self._texts.append((tag, []))
        elif tag == "p":
            kind = next((name for name in ("note", "soft", "verdict") if name in classes), "p")
            if kind == "verdict":
                self.page.verdict_kind = classes[-1]
            self._texts.append((f"p.{kind}", []))

    def _open(self, tag: str) -> None:
        if tag == "table":
            self._table = PageTable()
        elif tag == "thead":
            self._is_in_head = True
        elif tag == "tr" and self._table is not None and not self._is_in_head:
            self._table.rows.append([])

    def handle_data(self, data: str) -> None:
        if not self._depth_of_svg:
            for _, parts in self._texts:
                parts.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "svg":
            self._depth_of_svg -= 1
        if self._depth_of_svg:
            return
        if tag == "thead":
            self._is_in_head = False
        elif tag == "table" and self._table is not None:
            self.page.tables[self._table.caption or f"table {len(self.page.tables)}"] = self._table
            self._table = None
        elif tag == "ul":
            self._headline = 0
        if self._texts and self._texts[-1][0].partition(".")[0] == tag:
            kind, parts = self._texts.pop()
            self._take(kind, re.sub(r"\s+", " ", "".join(parts)).strip())

    def _take(self, kind: str, text: str) -> None:
        page, table = self.page, self._table
        if table is not None and kind in {"th", "td"}:
            (table.columns if self._is_in_head else table.rows[-1]).append(text)
        elif table is not None and kind == "caption":
            table.caption = text
        elif kind == "time":
            page.times.append((self._machine_time, text))
        elif self._headline and kind == "b":
            page.headline.append((text, ""))
        elif self._headline and kind == "li":
            value = page.headline[-1][0]
            page.headline[-1] = (value, text.removeprefix(value).strip())
        else:
            self._take_text(kind, text)

    def _take_text(self, kind: str, text: str) -> None:
        page = self.page
        if kind == "h1":
            page.title = text
        elif kind == "p.verdict":
            page.verdict = text
        elif kind == "p.soft" and not page.period:
            page.period = text
        lists = {"figcaption": page.captions, "p.note": page.notes, "summary": page.summaries}
        if kind in lists:
            lists[kind].append(text)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart: the variable of its color, its edges in chart units, and whether it is pale."""

    colour: str
    left: float
    right: float
    top: float
    bottom: float
    is_pale: bool


_FIGURE: Final = re.compile(r'<div class="on-desk">(<svg.*?</svg>)\s*</div>', re.DOTALL)
_PATCH: Final = re.compile(
    r'<path d="M ([\d.-]+) ([\d.-]+)\s+L ([\d.-]+) ([\d.-]+)\s+L ([\d.-]+) ([\d.-]+)\s+'
    r"L ([\d.-]+) ([\d.-]+)\s+"
    r'z\s*"[^>]*?style="fill: var\((--[\w-]+)\)([^"]*)"'
)


def pictures(html: str) -> list[str]:
    """Return the wide charts of a page, as SVG."""
    return _FIGURE.findall(html)


def bars(svg: str) -> list[Bar]:
    """Return the bars of a chart, in drawing order."""
    found = []
    for match in _PATCH.finditer(svg):
        values = [float(text) for text in match.groups()[:8]]
        across, down = values[0::2], values[1::2]
        found.append(Bar(match[9], min(across), max(across), min(down), max(down), "opacity" in match[10]))
    return found
