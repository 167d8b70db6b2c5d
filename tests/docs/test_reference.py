"""The pages of the reference are those of the code, and leave nothing out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from assignor_core.assignors import assignor_names
from evenlag.audit.enums import AnomalyKind, Certainty, HintVerdict, RebalanceCause
from evenlag.consumer.events import IGNORED, Reason
from evenlag.enums import (
    AlertState,
    ControlAction,
    DecisionKind,
    LagStatus,
    OwnershipState,
    PlanEvent,
    RequestState,
)
from evenlag.monitoring.alerts import AlertKind
from evenlag.policy.settings import Policy
from tests.reference_pages import PAGES, main, render_assignors, render_records, replace_table
from tests.support.pages.markdown import ROOT, Page, cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# The sections of docs/reference/events.md, and the values that each explains, in this order.
VALUES: Final[Mapping[str, Iterable[str]]] = {
    "Decisions about a group": DecisionKind,
    "Events of a plan": PlanEvent,
    "Requests for approval": RequestState,
    "Commands on hints": ControlAction,
    "Reasons of a consumer": Reason,
    "Lag statuses": LagStatus,
    "Alerts": AlertKind,
    "States of an alert": AlertState,
    "Owners of a partition": OwnershipState,
    "Causes of a rebalance": RebalanceCause,
    "Adherence to a hint": HintVerdict,
    "Anomalies": AnomalyKind,
    "How certain an owner is": Certainty,
}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_that_of_the_code(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name](), "run: python -m tests.reference_pages"


def test_every_setting_says_what_it_is() -> None:
    definitions = Policy.model_json_schema()
    models = [definitions, *(one for one in definitions["$defs"].values() if one.get("type") == "object")]
    unsaid = [
        f"{model['title']}.{name}"
        for model in models
        for name, field in model["properties"].items()
        if model["title"] != "SecretRef" and not field.get("description")
    ]
    assert unsaid == []


def test_settings_have_their_defaults_and_ranges() -> None:
    rows = {
        tuple(cells(line)) for table in Page(ROOT / "docs/reference/policy.md").tables for _, line in table
    }
    meaning = "how long a hint may start a rebalance, and the maximum age of a plan at publishing"
    assert ("`hint_ttl_s`", "`900`", "integer from 10 to 604,800", meaning) in rows
    assert ("`min_gain`", "`0.05`", "number from 0 below 1") in {row[:3] for row in rows}
    assert ("`mode`", "`shadow`", "`observe`, `shadow`, `approve`, `auto`") in {row[:3] for row in rows}
    assert ("`approval_key`", "none", "`{env: NAME}` or `{file: PATH}`") in {row[:3] for row in rows}


@pytest.mark.parametrize("section", sorted(VALUES))
def test_the_page_of_events_has_each_value_of_the_code_with_a_meaning(section: str) -> None:
    text = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    assert sorted(sections) == sorted(VALUES)
    rows = [cells(line) for line in sections[section].splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows] == [f"`{value}`" for value in VALUES[section]]
    assert all(row[1] for row in rows)


def test_the_page_of_events_says_when_a_consumer_ignores_a_hint() -> None:
    text = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
    ignored = ", ".join(f"`{reason}`" for reason in Reason if reason in IGNORED)
    assert f"A hint counts as ignored by a consumer for: {ignored}." in " ".join(text.split())


def test_records_are_indexed_and_one_without_a_title_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0007-a-thing.md").write_text("# 7. A thing\n\n## Context\n", encoding="utf-8")
    assert "\n- [7. A thing](0007-a-thing.md)\n" in render_records(tmp_path)
    (tmp_path / "0008-other.md").write_text("# Other\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"0008-other\.md: a record begins with its number and title"):
        render_records(tmp_path)


def test_an_outdated_page_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PAGES, "docs/reference/errors.md", lambda: "other")
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == "docs/reference/errors.md\n"


def test_a_row_of_an_assignor_has_its_declarations() -> None:
    lines = render_assignors().partition("<!-- end of assignors -->")[0].splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert set(assignor_names()) == set(rows)
    assert rows["lag-aware-sticky"].endswith(
        "| `max_moves`, `count_slack`, `min_gain`, `rack_tolerance`, `effort` | load | cooperative |"
    )
    assert cells(rows["range"])[2:] == ["", "", "eager"]


def test_a_page_without_a_table_of_assignors_is_refused() -> None:
    with pytest.raises(ValueError, match="no table between"):
        replace_table("# Another page")


def test_every_event_is_on_its_page() -> None:
    events = (table for table in Page(ROOT / "docs/reference/modes.md").tables if "event" in table[0][1])
    assert {cells(line)[0].strip("`") for table in events for _, line in table[2:]} == set(PlanEvent)


def test_every_check_of_the_doctor_is_on_its_page() -> None:
    folder = ROOT / "evenlag" / "doctor"
    checks = {
        pair
        for path in folder.glob("*.py")
        for pair in re.findall(r'\bCheck\(\s*"(\w+)",\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    page = (ROOT / "docs/reference/doctor.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert {area for area, _ in checks} == set(rows)
    assert sorted(pair for pair in checks if f"`{pair[1]}`" not in rows[pair[0]]) == []
