"""The worked examples of CONTRIBUTING, applied to a copy of the code: each works with no other change."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.pages.markdown import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES: Final = ("assignor_core", "evenlag", "spark_jobs")
# Besides tests and generated pages.
MAX_FILES: Final = 3
GATE_WORKS: Final = """
import json
import pandas as pd
from evenlag.planning.gate_inputs import gate_inputs
from evenlag.policy.candidates import parse_candidate
from evenlag.policy.gates import GATES
from evenlag.policy.json_schema import render_schema
from evenlag.policy.portable_settings import plain_values
from evenlag.policy.group_settings import GateLimits, GroupSettings
from evenlag.publishing.gates_reference import render_gates
from evenlag.simulation.scenarios import passes_gates
from spark_jobs.steps.expectations import judge_plans

NAME = "max_member_partitions_share"
(gate,) = (gate for gate in GATES if gate.name == NAME)
settings = GroupSettings(gates=GateLimits(**{NAME: 0.6}))
limits = json.loads(render_schema())["$defs"]["GateLimits"]["properties"]
assert (limits[NAME]["exclusiveMinimum"], limits[NAME]["maximum"], limits[NAME]["default"]) == (0, 1, 1.0)
assert {"after_max_member_partitions", "num_partitions"} <= set(gate_inputs())
plan = {"settings": settings.canonical_json(), "num_partitions": 4}
frame = pd.DataFrame(
    [{**plan, "plan_id": f"{most} of 4", "after_max_member_partitions": most} for most in (2, 3)]
)
verdicts = {row["plan_id"]: row for row in judge_plans(frame, gates=[gate])}
assert verdicts["2 of 4"]["passed"] and not verdicts["3 of 4"]["passed"]
said = "one member owns 75% of the partitions, at most 60% are allowed"
assert verdicts["3 of 4"]["message"] == said
example = "one of two members owns 3 of 4 partitions, the limit is 0.6"
assert f"| `{NAME}` | {example} | {said} |" in render_gates()
candidate = parse_candidate(f"lag-aware:{NAME}=0.5").settings_for(GroupSettings())
assert candidate.rule.gates.values()[NAME] == 0.5
simulated = {"count_gap": 0, "moves": 0, "gain": 1.0, "num_partitions": 4}
values = plain_values(settings)
assert passes_gates(values, simulated | {"after_max_member_partitions": 2})
assert not passes_gates(values, simulated | {"after_max_member_partitions": 3})
"""
ASSIGNOR_WORKS: Final = """
from assignor_core.assignors import assignor_names, get_assignor
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.problem import read_problem, solve
from evenlag.policy.candidates import parse_candidate
from evenlag.policy.group_settings import GroupSettings

NAME = "first-subscriber"
assert NAME in assignor_names()
group = Group.from_members({"t": 3, "u": 2}, [Member("a", ("t", "u")), Member("b", ("u",))])
assert get_assignor(NAME).assign(group).tolist() == [0, 0, 0, 0, 0]
assert GroupSettings(assignor=NAME).assignor == NAME
assert parse_candidate(NAME).assignor == NAME
members = [{"id": "a", "topics": ["t"]}, {"id": "b"}]
problem = read_problem({"topics": {"t": 3}, "members": members, "lags": {"t": [1, 2, 3]}})
answer = solve(problem, NAME, to_the_end=True)
assert answer["assignment"] == {"a": [["t", 0], ["t", 1], ["t", 2]], "b": []}
"""
COLUMN_WORKS: Final = """
from datetime import UTC, date, datetime
import pyarrow as pa
from evenlag.kafka.arrow_rows import body_schema, with_head
from evenlag.lag.formula import STORED_ONLY, count_lag
from evenlag.lag.partitions import join_partitions
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from evenlag.lake.tables_reference import render_tables
from evenlag.policy.group_settings import GroupSettings

NOW = datetime(2026, 3, 1, tzinfo=UTC)
def rows(table, **values):
    schema = body_schema(table)
    return pa.Table.from_pylist([{name: values.get(name) for name in schema.names}], schema)

place = {"topic_id": "i", "topic": "t", "partition": 0, "read_at": NOW, "end_read_at": NOW}
offsets = rows(OFFSETS, **place, log_start_offset=40, high_watermark=100, last_stable_offset=100)
commits = rows(COMMITS, **place, group_id="g", committed_offset=90)
members = rows(MEMBERS, group_id="g", group_state="Stable", member_id="m", subscription=["t"], assignment=[])
joined = join_partitions(offsets, commits, members, lambda _: GroupSettings(reset_policy="earliest"))
counted = count_lag(joined.partitions, joined.groups, joined.member_ids, 900)
head = dict(zip(STORED_ONLY, ("c", date(2026, 3, 1), "s", NOW), strict=True))
(row,) = with_head(counted, LAG, head).to_pylist()
assert (row["lag_records"], row["retained_records"]) == (10, 60)
assert "retained_records" in render_tables()
"""
METRIC_WORKS: Final = """
from datetime import UTC, datetime
from evenlag.overview.metrics import render_metrics
from evenlag.overview.model import ClusterState, GroupRow, Overview

rows = GroupRow("c", "even"), GroupRow("c", "skewed", hot="t-0")
overview = Overview(datetime(2026, 3, 1, tzinfo=UTC), (ClusterState("c"),), rows)
lines = render_metrics(overview, {}).decode().splitlines()
found = [line for line in lines if line.startswith("evenlag_group_hot{")]
assert found == [
    'evenlag_group_hot{cluster="c",group="even"} 0.0', 'evenlag_group_hot{cluster="c",group="skewed"} 1.0'
], found
"""


def examples(heading: str) -> list[tuple[str, str]]:
    """Return file and lines of each code block under a heading."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    blocks = re.findall(r"```diff\n--- (\S+)\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert blocks
    return blocks


def applied(text: str, lines: str) -> str:
    """Return a file after an example: its lines with ``+`` are inserted between the others."""
    old = "".join(line[1:] or "\n" for line in lines.splitlines(keepends=True) if not line.startswith("+"))
    new = "".join(line[1:] or "\n" for line in lines.splitlines(keepends=True) if not line.startswith("-"))
    assert text.count(old) == 1 or not text
    return text.replace(old, new) if text else new


def apply_to(root: Path, heading: str) -> None:
    found = examples(heading)
    assert len({name for name, _ in found}) <= MAX_FILES
    for name, lines in found:
        path = root / name
        if name.startswith("docs/"):
            path.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, path)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(applied(text, lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "works"),
    [("Add a gate", GATE_WORKS), ("Add a metric", METRIC_WORKS), ("Add an assignor", ASSIGNOR_WORKS)],
)
def test_the_example_works_in_a_copy_of_the_code(heading: str, works: str, tmp_path: Path) -> None:
    files = {name for name, _ in examples(heading)}
    assert len(files) <= 3
    run_in_copy(tmp_path, heading, works)


def run_in_copy(root: Path, heading: str, works: str) -> None:
    """Apply an example to a copy of the code, and run a program there."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    apply_to(root, heading)
    done = subprocess.run(
        [sys.executable, "-c", works],
        cwd=root,
        env={"PATH": "", "PYTHONPATH": str(root), "HOME": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_example_of_a_column_works_in_a_copy_of_the_code(tmp_path: Path) -> None:
    """A small snapshot is counted and stored; of a large one Spark runs the same function."""
    run_in_copy(tmp_path, "Add a column", COLUMN_WORKS)
