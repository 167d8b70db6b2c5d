"""Hostile names through every way to print them: no control character, no live markup, no formula."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import sys
import unicodedata
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from rich.text import Text

from evenlag.cli.console import console, print_error, print_json, shown_progress
from evenlag.cli.export import export_rows
from evenlag.cli.layout import Column, Table, numbers
from evenlag.consumer import events
from evenlag.html import markup
from evenlag.logging_setup import JsonFormatter, TextFormatter, log_fields, named_logger
from evenlag.monitoring.alerts import AlertChanges, AlertKind, Fault
from evenlag.safe_text import cell_text, log_text, markdown_text, page_text, printable, printable_lines
from tests.support.names.hostile import hostile_names, is_bad, is_clean, kafka_names
from tests.support.names.pages import approval_markdown, docs_html, report_html

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# What is visible of a terminal's own sequences: rich's styles and the end of a line.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_FORMULA_STARTS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def test_the_ranges_are_those_of_unicode() -> None:
    wrong = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if is_bad(chr(code)) and not is_clean(printable(chr(code)))
    ]
    assert wrong == []
    # What people write stays as it is: only a few unassigned characters are escaped beside them.
    changed = [code for code in range(0x20, sys.maxunicode + 1) if printable(chr(code)) != chr(code)]
    visible = [code for code in changed if unicodedata.category(chr(code))[0] in "LMNPS"]
    assert visible == []


def test_a_page_has_no_element_that_is_not_ours() -> None:
    check_page(list(hostile_names(2_000, seed=1)))


def test_a_report_and_the_data_docs_have_no_element_that_is_not_ours() -> None:
    check_pages(kafka_names(60, seed=5))


def test_an_approval_is_one_table_of_texts() -> None:
    check_markdown(list(hostile_names(1_000, seed=6)))
    check_alerts(list(hostile_names(1_000, seed=8)))


def test_a_terminal_shows_names_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    check_terminal(list(hostile_names(1_500, seed=2)), capsys)


def test_a_log_has_one_record_a_record(tmp_path: Path) -> None:
    check_log(list(hostile_names(2_000, seed=3)))
    check_export(list(hostile_names(2_000, seed=4)), tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_hostile_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for seed in range(100):
        names = list(hostile_names(10_000, seed=1_000 + seed))
        check_page(names)
        check_terminal(names, capsys)
        check_log(names)
        check_export(names, tmp_path)
        check_markdown(names)
        check_alerts(names)
        # Charts take seconds, so a report has some of the names.
        check_pages(kafka_names(100, seed=2_000 + seed), num_in_docs=10_000)


class _Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: set[tuple[str, tuple[str, ...]]] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _page_of(names: Sequence[str]) -> _Elements:
    body = markup.table(("group", "lag#"), [(name, 1) for name in names], caption=names[0])
    details = "".join(markup.details(name, markup.text(name)) for name in names)
    html = markup.page(names[0], body + details)
    assert is_clean(html, allowed="\n\t")
    parser = _Elements()
    parser.feed(html)
    parser.close()
    return parser


def check_page(names: Sequence[str]) -> None:
    """Compare a page's elements with those of a page with a harmless name."""
    found = _page_of(names)
    assert found.elements == _page_of(["orders"]).elements
    text = "".join(found.texts)
    assert all(printable_lines(name) in text for name in names)


def check_pages(names: Sequence[str], *, num_in_docs: int = 1_000) -> None:
    """Compare the elements of a report and of Data Docs with those of pages with harmless names."""
    found, (expected, ours) = report_html(names), _elements_of_ours()
    assert is_clean(found, allowed="\n\t")
    assert _elements(found) <= expected
    most = [*names, *kafka_names(num_in_docs - len(names), seed=len(names))]
    for html in docs_html(most).values():
        assert is_clean(html, allowed="\n\t")
        assert _elements(html) <= ours


@cache
def _elements_of_ours() -> tuple[set[tuple[str, tuple[str, ...]]], set[tuple[str, tuple[str, ...]]]]:
    """Return the elements of a report and of Data Docs with harmless names."""
    harmless = [f"orders-{number}" for number in range(60)]
    return _elements(report_html(harmless)), set().union(*map(_elements, docs_html(harmless).values()))


def _elements(html: str) -> set[tuple[str, tuple[str, ...]]]:
    parser = _Elements()
    parser.feed(html)
    parser.close()
    return parser.elements


def check_markdown(names: Sequence[str]) -> None:
    """Render texts by another implementation of GitHub's Markdown: each is one cell, and has no markup."""
    from markdown_it import MarkdownIt

    render = MarkdownIt("gfm-like")
    lines = ["| name | |", "| --- | --- |", *(f"| {markdown_text(name)} | end |" for name in names)]
    cells = []
    for token in render.parse("\n".join(lines)):
        if token.type != "inline":
            continue
        kinds = {child.type for child in token.children or ()}
        assert kinds <= {"text", "code_inline", "text_special"}, token.content
        cells.append("".join(child.content for child in token.children or ()))
    shown = [" ".join(cell.split()) for cell in cells[2::2]]
    assert shown == [" ".join(_shown_in_markdown(name).split()) for name in names]
    assert set(cells[3::2]) == {"end"}
    subject, body = approval_markdown(kafka_names(60, seed=len(names[0])))
    assert is_clean(subject)
    assert is_clean(body, allowed="\n")


def _shown_in_markdown(name: str) -> str:
    shown = printable(name)
    has_link = re.search("://|www\\.|@|mailto:|xmpp:", shown, re.IGNORECASE)
    return shown.replace("|", "\\x7c") if has_link else shown


def check_alerts(names: Sequence[str]) -> None:
    """Each change of an alert is one line of the text for a notifier."""
    faults = tuple(Fault(AlertKind.PLAN_REJECTED, name, name) for name in names)
    lines = AlertChanges(faults, faults, len(faults)).text.split("\n")
    assert len(lines) == 2 * len(faults)
    assert all(map(is_clean, lines))


def check_terminal(names: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Print names in each form that the commands use."""
    out = console()
    shown = Table(names[0], (Column("group"), numbers("lag")), caption=names[1])
    for name in names:
        shown.add_row(name, Text(name, style="red"))
    out.print(shown)
    with shown_progress() as report:
        for name in names[:50]:
            out.print(name, soft_wrap=True)
            out.print(Text(name), soft_wrap=True)
            report(name, 0, 1)
            print_error(name, name)
            print_json({name: name})
    for text in capsys.readouterr():
        assert is_clean(_STYLE.sub("", text), allowed="\n\t")
        assert "[/x]" not in text or "\x1b]8" not in text


def check_log(names: Sequence[str]) -> None:
    """Format records with names in their messages, arguments and context fields."""
    for name in names:
        record = logging.LogRecord("evenlag", logging.INFO, __file__, 1, "group %s: planned", (name,), None)
        with log_fields(group_id=name):
            text, line = TextFormatter().format(record), JsonFormatter().format(record)
        first, *more = text.split("\n")
        assert is_clean(first, allowed="\t")
        assert all(each.startswith("    ") and is_clean(each, allowed="\t") for each in more)
        assert line.isascii()
        assert is_clean(line)
        # JSON joins the halves of a surrogate pair; Kafka has no name with halves.
        joined = name.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        assert json.loads(line)["message"] == f"group {joined}: planned"
        assert log_text(name).count("\n") == name.count("\n")
        assert log_text(log_text(name)) == log_text(name)
    # Handlers that are not ours: Airflow's, or those of an application with evenlag's consumer.
    for logger in (named_logger("evenlag.test"), events.named_logger("evenlag.consumer.test")):
        taken = _Taken()
        logger.addHandler(taken)
        logger.propagate = False
        for name in names:
            logger.error("group %s", name, exc_info=ValueError(name), extra={"group_id": name})
        logger.removeHandler(taken)
        assert len(taken.lines) == len(names)
        for text in taken.lines:
            first, *more = text.split("\n")
            assert first.startswith("group ")
            assert is_clean(first, allowed="\t")
            # An exception without a traceback begins by its type.
            assert all(each.startswith(("    ", "ValueError: ")) for each in more)
            assert sum(each.startswith("ValueError: ") for each in more) <= 1
            assert all(is_clean(each, allowed="\t") for each in more)


class _Taken(logging.Handler):
    """Keeps what Python's own formatter makes of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def check_export(names: Sequence[str], folder: Path) -> None:
    """Read exports of names as spreadsheets with commas and with semicolons do."""
    # No name from Kafka has half of a surrogate pair, which UTF-8 does not have.
    told_names = [name for name in names if not re.search("[\ud800-\udfff]", name)]
    rows = [{"group": name, "lag": -1} for name in told_names]
    export_rows(rows, folder / "names.csv")
    text = (folder / "names.csv").read_text(encoding="utf-8")
    assert is_clean(text, allowed="\n")
    by_comma = list(csv.reader(io.StringIO(text)))
    assert [row[0] for row in by_comma[1:]] == list(map(cell_text, told_names))
    for row in by_comma[1:]:
        assert not row[0].lstrip().startswith(_FORMULA_STARTS)
        assert not any(part.lstrip().startswith(_FORMULA_STARTS) for part in row[0].split(";"))
    export_rows(rows, folder / "names.json")
    shown = (folder / "names.json").read_text(encoding="utf-8")
    assert shown.isascii()
    assert is_clean(shown, allowed="\n")
    assert [row["group"] for row in json.loads(shown)] == told_names


def test_some_texts_are_what_one_expects() -> None:
    assert printable("a\x1b[2J\u202eb") == "a\\x1b[2J\\u202eb"
    assert log_text("x\n2026 INFO y") == "x\n    2026 INFO y"
    assert page_text('"><script>') == "&quot;&gt;&lt;script&gt;"
    assert cell_text("=1") == "'=1"
    assert cell_text("a;\t=1") == "a;\\t=1"
    assert cell_text("a; =1") == "a;' =1"
