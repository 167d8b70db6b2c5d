"""Settings travel to executors, which have neither pydantic nor PyYAML, as plain values."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from evenlag.enums import Mode
from evenlag.policy.candidates import parse_candidate
from evenlag.policy.loader import parse_policy
from evenlag.policy.portable_settings import PortableSettings

ROOT = Path(__file__).resolve().parents[3]
POLICY = """
lake: /lake
max_mode: approve
clusters:
  orders: {bootstrap_servers: "a:1", kafka: {proxy_url: {env: PASSWORD}}}
groups:
  - {match: "billing-*", clusters: orders, mode: auto, max_moves: 7, capacities: [{match: big, capacity: 2}]}
  - {match: "/audit[0-9]/", mode: observe, load: rate}
"""
# What runs on an executor, or is unpickled there; a new module with such work belongs here.
EXECUTOR_MODULES = (
    "evenlag.planning.group_planner",
    "evenlag.planning.group_batch",
    "spark_jobs.transforms.lag",
    "spark_jobs.transforms.plan_frames",
    "evenlag.planning.plan_batch",
    "spark_jobs.transforms.simulations",
    "evenlag.simulation.simulate_group",
    "evenlag.simulation.history",
    "evenlag.policy.portable_settings",
)
WITHOUT = """
import pickle, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{"pydantic", "pydantic_core", "yaml", "deltalake", "airflow", "typer"}}:
            raise ModuleNotFoundError(f"an executor has no {{name}}")
sys.meta_path.insert(0, Missing())
for module in {modules!r}:
    __import__(module)
policy, compared = pickle.loads(sys.stdin.buffer.read())
rule = policy.group_settings("orders", "billing-eu")
print(rule.canonical_json())
print(compared.settings_for(rule).canonical_json())
"""


@pytest.mark.parametrize("group", ["billing-eu", "audit7", "another"])
def test_a_policy_that_travels_says_the_same_of_every_group(group: str) -> None:
    policy = parse_policy(POLICY, environ={}).policy
    portable = pickle.loads(pickle.dumps(policy))  # noqa: S301 - as Spark does with what a task holds
    here, there = policy.group_settings("orders", group), portable.group_settings("orders", group)
    assert there.canonical_json() == here.canonical_json()
    assert (there.mode, there.gates.min_breaches) == (here.mode, here.gates.min_breaches)
    for instance in ("big", "small", None):
        assert there.capacity_of(instance) == here.capacity_of(instance)
    assert policy.group_settings("elsewhere", "billing-eu").mode is Mode.SHADOW
    assert portable.group_settings("elsewhere", "billing-eu").mode is Mode.SHADOW


def test_portable_settings_stay_as_they_are_and_carry_no_cluster() -> None:
    data = pickle.dumps(parse_policy(POLICY, environ={}).policy)
    assert b"PASSWORD" not in data
    portable = PortableSettings(a=1)
    with pytest.raises(AttributeError, match="do not change"):
        portable.a = 2
    with pytest.raises(AttributeError, match="no setting 'b'"):
        _ = portable.b
    assert portable.changed(a=1) == portable
    assert portable.changed(a=2) != portable
    assert len({portable, portable.changed(a=1)}) == 1


def test_an_executor_without_pydantic_works_by_the_same_settings() -> None:
    policy = parse_policy(POLICY, environ={}).policy
    compared = parse_candidate("lag-aware-sticky:cooldown_s=5,load=rate,effort=3")
    rule = policy.group_settings("orders", "billing-eu")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(modules=EXECUTOR_MODULES)],
        input=pickle.dumps((policy, compared)),
        capture_output=True,
        timeout=600,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr.decode()
    texts = [rule.canonical_json(), compared.settings_for(rule).canonical_json()]
    assert done.stdout.decode().splitlines() == texts
