"""States, events and kinds that tables record are written as enums, not as string literals."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from evenlag import enums
from evenlag.audit import enums as audit_enums

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum

ROOT: Final = Path(__file__).resolve().parents[2]
KINDS: Final = (
    enums.AlertState,
    enums.ControlAction,
    enums.DecisionKind,
    enums.GroupState,
    enums.GroupType,
    enums.LagStatus,
    enums.Outcome,
    enums.OutcomeReason,
    enums.OwnershipState,
    enums.PlanEvent,
    enums.RequestState,
    audit_enums.AnomalyKind,
    audit_enums.Certainty,
    audit_enums.HintVerdict,
    audit_enums.OwnerChange,
    audit_enums.RebalanceCause,
)
# OK and share are common words; the name of a status or a group type is one of many meanings.
VALUES: Final = frozenset(str(value) for kind in KINDS for value in kind) - {"OK", "share"}
# These packages import nothing else of the product, so they cannot use its enums.
ISLANDS: Final = ("evenlag/consumer/", "assignor_core/")
# Modules that still use literals, with how many; a number may only fall.
REMAINING: Final[dict[str, int]] = {
    # A protocol type, which happens to be spelled as a group type.
    "evenlag/kafka/member_protocol.py": 1,
}


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        ("PT6H", 21_600_000),
        ("P1DT12H", 129_600_000),
        ("P2D", 172_800_000),
        ("PT1H30M0.5S", 5_400_500),
        ("pt10s", 10_000),
        ("PT0.123456789S", 123),
        ("PT0S", 0),
    ],
)
def test_a_duration_is_read_as_java_reads_it(duration: str, milliseconds: int) -> None:
    assert enums.reset_age_ms(f"by_duration:{duration}") == milliseconds


@pytest.mark.parametrize("duration", ["", "P", "PT", "P1DT", "6H", "PT-6H", "-PT6H", "P1M", "P1W", "PT6"])
def test_what_is_no_duration_is_refused(duration: str) -> None:
    with pytest.raises(ValueError, match="write by_duration:"):
        enums.reset_age_ms(f"by_duration:{duration}")


def literals(source: str) -> Iterator[ast.Constant]:
    """String constants that are a value of an enum, other than in the definition of an enum."""
    tree = ast.parse(source)
    defined = {
        id(node)
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in each.bases)
        for node in ast.walk(each)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in defined and node.value in VALUES:
            yield node


def test_product_code_uses_the_enums() -> None:
    found: dict[str, list[str]] = {}
    for package in ("evenlag", "spark_jobs", "dags"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            lines = [f"{node.lineno}: {node.value!r}" for node in literals(path.read_text(encoding="utf-8"))]
            if lines and not name.startswith(ISLANDS):
                found[name] = lines

    assert {name: lines for name, lines in found.items() if len(lines) > REMAINING.get(name, 0)} == {}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_arrow_treats_a_member_as_its_value(kind: type[StrEnum]) -> None:
    """Filters and columns are built from members."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = [str(member) for member in kind]
    column = pa.array(values)

    assert pa.array(list(kind)).equals(column)
    assert pc.sum(pc.equal(column, next(iter(kind)))).as_py() == 1
    assert pc.all(pc.is_in(column, value_set=pa.array(list(kind)))).as_py()
