"""The pages of settings and of gates list every setting with its default."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.enums import PlanEvent
from evenlag.policy.cluster_settings import ClusterSettings, PrivacySettings, SnapshotSettings
from evenlag.policy.group_settings import BackOff, CapacityRule, GateLimits, GroupRule
from evenlag.policy.settings import ComparisonSettings, MaintenanceSettings, Pauses, Policy

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILE, RULES, DAILY, MODES = (
    (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("policy-file", "rules", "daily-jobs", "modes")
)
GATES_PAGE = (DOCS / "gates.md").read_text(encoding="utf-8")
HEADINGS: dict[type[BaseModel], tuple[str, str]] = {
    Policy: (FILE, "# The policy file"),
    ClusterSettings: (FILE, "## A cluster: `clusters.<name>`"),
    PrivacySettings: (FILE, "## What is written of members: `privacy` of `clusters.<name>`"),
    SnapshotSettings: (FILE, "## Snapshots of a cluster: `snapshot` of `clusters.<name>`"),
    GroupRule: (RULES, "## A rule: an entry of `groups`"),
    CapacityRule: (RULES, "## Capacities"),
    GateLimits: (RULES, "## Limits of the gates: `gates` of a rule"),
    BackOff: (RULES, "## Backing off: `back_off` of a rule"),
    ComparisonSettings: (DAILY, "## Comparison"),
    MaintenanceSettings: (DAILY, "## Maintenance of the lake: `maintenance`"),
    Pauses: (DAILY, "## Pauses of a replay: `pauses` of `comparison`"),
}


def rows_under(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the tables between a heading and the next one."""
    section = f"\n{page}".partition(f"\n{heading}\n")[2].partition("\n#")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]


def told_default(field: FieldInfo) -> str | None:
    """Return a plain default as the pages write it; None where words have to do."""
    default = field.default.value if isinstance(field.default, Enum) else field.default
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    plain = isinstance(default, int | float | str) and not field.is_required()
    return f"`{default}`" if plain else None


@pytest.mark.parametrize("model", HEADINGS, ids=lambda model: model.__name__)
def test_every_setting_is_on_its_page_with_its_default(model: type[BaseModel]) -> None:
    rows = rows_under(*HEADINGS[model])
    if model is GateLimits:
        rows += rows_under(GATES_PAGE, "## The limits")
    shown = {row[0].strip("`"): row[1] for row in rows}
    assert set(shown) == set(model.model_fields)
    for name, field in model.model_fields.items():
        expected = told_default(field)
        assert shown[name] == expected or (expected is None and not shown[name].startswith("`")), name
        assert (shown[name] == "must be given") is field.is_required(), name


def test_every_event_is_on_its_page() -> None:
    assert {row[0].strip("`") for row in rows_under(MODES, "## Events")} == set(PlanEvent)


def test_every_check_of_the_doctor_is_on_its_page() -> None:
    folder = DOCS.parent / "evenlag" / "doctor"
    checks = {
        pair
        for path in folder.glob("*.py")
        for pair in re.findall(r'\bCheck\(\s*"(\w+)",\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    page = (DOCS / "reference" / "doctor.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert {area for area, _ in checks} == set(rows)
    assert sorted(pair for pair in checks if f"`{pair[1]}`" not in rows[pair[0]]) == []
