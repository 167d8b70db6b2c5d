"""The worked examples of CONTRIBUTING, applied to a copy of the code: each works with no other change."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from evenlag.spark_installation import jars_folder
from tests.support.commits import commit_offsets
from tests.support.pages.markdown import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from sandbox.kafka.broker import Broker

PACKAGES: Final = ("assignor_core", "evenlag", "spark_jobs")
# Besides tests and generated pages.
MAX_FILES: Final = 3
GATE_WORKS: Final = """
import json
import pandas as pd
from evenlag.planning.gate_inputs import gate_inputs
from evenlag.policy.candidates import parse_candidate
from evenlag.policy.gates import GATES
from evenlag.policy.settings import render_schema
from evenlag.policy.portable_settings import plain_values
from evenlag.policy.group_settings import GateLimits, GroupSettings
from tests.reference_pages import render_gates
from tests.support.gate_examples import EXAMPLES, Example
from evenlag.simulation.scenarios import passes_gates
from spark_jobs.steps.expectations import gate_verdicts

NAME = "max_member_partitions_share"
(gate,) = (gate for gate in GATES if gate.name == NAME)
settings = GroupSettings(gates=GateLimits(**{NAME: 0.6}))
limits = json.loads(render_schema())["$defs"]["GateLimits"]["properties"]
assert (limits[NAME]["minimum"], limits[NAME]["maximum"], limits[NAME]["default"]) == (0, 1, 1.0)
assert {"after_max_member_partitions", "num_partitions"} <= set(gate_inputs())
plan = {"settings": settings.canonical_json(), "num_partitions": 4}
frame = pd.DataFrame(
    [{**plan, "plan_id": f"{most} of 4", "after_max_member_partitions": most} for most in (2, 3)]
)
verdicts = {row["plan_id"]: row for row in gate_verdicts(frame, gates=[gate])}
assert verdicts["2 of 4"]["passed"] and not verdicts["3 of 4"]["passed"]
said = "one member owns 75% of the partitions, at most 60% are allowed"
assert verdicts["3 of 4"]["message"] == said
example = "one of two members owns 3 of 4 partitions, the limit is 0.6"
EXAMPLES[NAME] = Example(example, 0.75, 0.6)
assert f"| `{NAME}` | {example} | {said} |" in render_gates()
candidate = parse_candidate(f"lag-aware:{NAME}=0.5").settings_for(GroupSettings())
assert candidate.rule.gates.values()[NAME] == 0.5
simulated = {"count_gap": 0, "moves": 0, "gain": 1.0, "num_partitions": 4}
simulated |= {"record_s_saved": None, "record_s_cost": None}
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
CYCLES_WORK: Final = """
import sys
from datetime import UTC, datetime
from evenlag.lake import snapshot_reader
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import DECISIONS, LAG
from tests.reference_pages import render_tables
from evenlag.policy.loader import parse_policy
from spark_jobs.runtime.session import open_session
from spark_jobs.steps import collect_snapshot, compute_lag
from spark_jobs.steps.cycle_steps import run_decide
from spark_jobs.steps.cycle_steps import run_observe

lake, servers, group = sys.argv[1:]
policy = f'''
lake: {lake}
clusters: {{c: {{bootstrap_servers: "{servers}"}}}}
groups:
  - match: "*"
    mode: shadow
    reset_policy: earliest
    assignor: first-subscriber
    gates: {{max_member_partitions_share: 0.9}}
'''
loaded, slots = parse_policy(policy, environ={}), []
with open_session("worked examples") as spark:
    for rows_in_driver in (50_000, 0):
        for module in (collect_snapshot, compute_lag, snapshot_reader):
            module.MAX_DRIVER_ROWS = rows_in_driver
        slots.append(datetime.now(UTC))
        run_observe(spark, loaded, "c", slots[-1], f"run-{rows_in_driver}")
        run_decide(spark, loaded, "c", slots[-1], f"run-{rows_in_driver}")
reader = LakeReader(lake)
filters = [("cluster", "=", "c"), ("group_id", "=", group)]
rows = reader.read(LAG, columns=["slot", "lag_records", "retained_records"], filters=filters).to_pylist()
assert [(row["lag_records"], row["retained_records"]) for row in rows] == [(2, 3)] * 2, rows
assert len({row["slot"] for row in rows}) == 2
decided = reader.read(DECISIONS, columns=["snapshot_id"], filters=filters).to_pylist()
assert len({row["snapshot_id"] for row in decided}) == 2, decided
assert "retained_records" in render_tables()
"""
METRIC_WORKS: Final = """
from evenlag.overview.metrics import render_metrics
from evenlag.overview.model import ClusterState, GroupRow, Overview

rows = GroupRow("c", "even"), GroupRow("c", "skewed", hot="t-0")
overview = Overview((ClusterState("c"),), rows)
lines = render_metrics(overview, {}).decode().splitlines()
found = [line for line in lines if line.startswith("evenlag_group_hot{")]
assert found == [
    'evenlag_group_hot{cluster="c",group="even"} 0.0', 'evenlag_group_hot{cluster="c",group="skewed"} 1.0'
], found
"""
HEADINGS: Final = ("Add a gate", "Add a column", "Add a metric", "Add an assignor")


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
    copy_with([heading], tmp_path)
    run_in(tmp_path, works)


def copy_with(headings: Iterable[str], root: Path) -> None:
    """Copy the code to a folder, and apply examples to it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    for heading in headings:
        apply_to(root, heading)


def run_in(root: Path, works: str, *arguments: str) -> None:
    """Run a program with the code in a folder."""
    environment = {"PYTHONPATH": str(root), "HOME": str(root), "EVENLAG_JARS": str(jars_folder())}
    done = subprocess.run(
        [sys.executable, "-c", works, *arguments],
        cwd=root,
        env=environment | {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.extended
@pytest.mark.jvm
def test_whole_cycles_run_with_all_examples(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """One cycle has few rows, which the driver joins; of the other one Spark joins them."""
    copy_with(HEADINGS, tmp_path)
    topic, group = unique("orders"), unique("billing")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics({topic: {"num_partitions": 4}}, wait_for_metadata=True)
    commit_offsets(admin, group, {TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
    admin.close()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for _ in range(3):
        producer.send(topic, b"x", partition=0)
    producer.close()
    run_in(tmp_path, CYCLES_WORK, str(tmp_path / "lake"), broker.bootstrap_servers, group)
