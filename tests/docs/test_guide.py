"""The guide and the page of gates list every setting with its default."""

from __future__ import annotations

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
GUIDE = (DOCS / "guide.md").read_text(encoding="utf-8")
GATES_PAGE = (DOCS / "gates.md").read_text(encoding="utf-8")
HEADINGS: dict[type[BaseModel], str] = {
    Policy: "## The policy file",
    ClusterSettings: "### A cluster: `clusters.<name>`",
    PrivacySettings: "### What is written of members: `privacy` of `clusters.<name>`",
    SnapshotSettings: "### Snapshots of a cluster: `snapshot` of `clusters.<name>`",
    GroupRule: "### A rule: an entry of `groups`",
    CapacityRule: "### Capacities",
    GateLimits: "### Limits of the gates: `gates` of a rule",
    BackOff: "### Backing off: `back_off` of a rule",
    ComparisonSettings: "### Comparison",
    MaintenanceSettings: "### Maintenance of the lake: `maintenance`",
    Pauses: "### Pauses of a replay: `pauses` of `comparison`",
}


def rows_under(heading: str, page: str = GUIDE) -> list[list[str]]:
    """Return the cells of the tables between a heading and the next one."""
    section = page.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]


def told_default(field: FieldInfo) -> str | None:
    """Return a plain default as the guide writes it; None where words have to do."""
    default = field.default.value if isinstance(field.default, Enum) else field.default
    plain = isinstance(default, int | float | str) and not field.is_required()
    return f"`{default}`" if plain else None


@pytest.mark.parametrize("model", HEADINGS, ids=lambda model: model.__name__)
def test_every_setting_stands_in_the_guide_with_its_default(model: type[BaseModel]) -> None:
    rows = rows_under(HEADINGS[model])
    if model is GateLimits:
        rows += rows_under("## The limits", GATES_PAGE)
    told = {row[0].strip("`"): row[1] for row in rows}
    assert set(told) == set(model.model_fields)
    for name, field in model.model_fields.items():
        expected = told_default(field)
        assert told[name] == expected or (expected is None and not told[name].startswith("`")), name
        assert (told[name] == "must be given") is field.is_required(), name


def test_every_event_stands_in_the_guide() -> None:
    assert {row[0].strip("`") for row in rows_under("## Events")} == set(PlanEvent)
