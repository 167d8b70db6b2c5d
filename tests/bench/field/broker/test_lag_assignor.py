"""The Java assignor of KIP-169 assigns as evenlag's `lag-aware`, by which the simulation runs."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from assignor_core.assignors import get_assignor
from assignor_core.group import Group
from sandbox.java_tools import java_command
from tests.bench.field.broker.programs import Programs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.extended


def test_it_assigns_as_lag_aware_and_as_the_example_of_the_kip(tmp_path: Path) -> None:
    chance = np.random.default_rng(169)
    cases = [(2, np.array([100_000, 60_000, 50_000]))]
    for _ in range(200):
        lags = chance.integers(0, chance.choice([3, 1_000, 1_000_000]), chance.integers(1, 60))
        cases.append((int(chance.integers(1, 12)), lags))
    program = [java_command(), "-cp", Programs.build(tmp_path).class_path, "evenlag.field.LagCases"]
    question = json.dumps([{"members": members, "lags": lags.tolist()} for members, lags in cases])
    answer = subprocess.run(program, input=question, capture_output=True, text=True, check=True).stdout
    found = json.loads(answer)
    # The KIP: C0 has t0p0 with 100,000, C1 both others with 110,000.
    assert found[0] == [0, 1, 1]
    for owners, (members, lags) in zip(found, cases, strict=True):
        assert owners == get_assignor("lag-aware").assign(_group(members, lags)).tolist()


def _group(num_members: int, lags: np.ndarray) -> Group:
    nothing = np.empty(0, dtype=np.int64)
    return Group.from_arrays(
        topics=["t"],
        num_partitions=np.array([len(lags)]),
        member_ids=[f"member-{number:04}" for number in range(num_members)],
        instance_ids=[None] * num_members,
        subscriptions=(np.arange(num_members), np.zeros(num_members, dtype=np.int64)),
        claims=(nothing, nothing, nothing),
        lags=lags,
    )
