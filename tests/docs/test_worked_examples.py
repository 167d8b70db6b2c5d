"""The worked examples of CONTRIBUTING, applied to a copy of the code: each works with no other change."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from spark_jobs.transforms.group_partitions import build_commit_history, build_offset_history
from tests.support.lakes.snapshots import HEAD, commit, frame, marker, member, offset
from tests.support.pages.markdown import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PACKAGES: Final = ("assignor_core", "evenlag", "spark_jobs")
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
from spark_jobs.simulation.gates import passes_gates
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
from assignor_core.verify import find_violations
from evenlag.policy.candidates import parse_candidate
from evenlag.policy.group_settings import GroupSettings

NAME = "first-subscriber"
assert NAME in assignor_names()
group = Group.from_members({"t": 3, "u": 2}, [Member("a", ("t", "u")), Member("b", ("u",))])
assert get_assignor(NAME).assign(group).tolist() == [0, 0, 0, 0, 0]
assert GroupSettings(assignor=NAME).assignor == NAME
assert parse_candidate(NAME).assignor == NAME
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
    for name, lines in examples(heading):
        path = root / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(applied(text, lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "works"), [("Add a gate", GATE_WORKS), ("Add an assignor", ASSIGNOR_WORKS)]
)
def test_the_example_works_in_a_copy_of_the_code(heading: str, works: str, tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    apply_to(tmp_path, heading)
    done = subprocess.run(
        [sys.executable, "-c", works],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def module(name: str, text: str) -> Any:
    """Return a module made of a source text; nothing else imports it."""
    made = ModuleType(name)
    exec(compile(text, name, "exec"), made.__dict__)  # noqa: S102 - our own page's example
    return made


@pytest.mark.jvm
def test_the_example_of_a_column_works(spark: SparkSession) -> None:
    (contract, added), (transform, filled) = examples("Add a column")
    tables = module("observation", applied((ROOT / contract).read_text(encoding="utf-8"), added))
    text = applied((ROOT / transform).read_text(encoding="utf-8"), filled)
    assert set(tables.LAG.column_names) - set(LAG.column_names) == {"retained_records"}

    lag = module("lag", text)
    lag.LAG = tables.LAG
    no_points = frame(spark, OFFSETS, []), frame(spark, COMMITS, [])
    (row,) = lag.build_lag(
        offsets=frame(spark, OFFSETS, [offset(0, 100, start=40)]),
        commits=frame(spark, COMMITS, [commit(0, 90)]),
        members=frame(spark, MEMBERS, [member("m-1", held={"t": [0]})]),
        marker=HEAD | marker(),
        group_settings=spark.createDataFrame(
            [("g", "earliest", None)], "group_id STRING, reset_policy STRING, isolation_level STRING"
        ),
        offset_history=build_offset_history(no_points[0]),
        commit_history=build_commit_history(no_points[1]),
        rate_window_s=900,
    ).collect()
    assert (row.lag_records, row.retained_records) == (10, 60)
