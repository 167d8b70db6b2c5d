"""The page on own assignors: its package plans; faults of others stay with their groups."""

from __future__ import annotations

import json
import pickle
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

import pytest

from assignor_core.assignors import find_assignor, installed
from assignor_core.assignors.range import RangeAssignor
from assignor_core.errors import ForeignAssignorError
from assignor_core.hint import HintPayload
from evenlag.doctor.policy_checks import check_assignors
from evenlag.errors import PolicyError
from evenlag.policy.candidates import parse_candidate
from evenlag.policy.gates import GATES
from evenlag.policy.loader import foreign_assignor_faults, parse_policy
from tests.evenlag.planning.test_plan_batch import SKEWED, decide, lag, members
from tests.support.lakes.snapshots import TOPIC_IDS, plan_context
from tests.support.pages.markdown import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    Install = Callable[[str, Mapping[str, str], str], None]

PAGE: Final = (ROOT / "docs" / "how-to" / "own-assignors.md").read_text(encoding="utf-8")
HEAD: Final = 'lake: /nowhere\nclusters: {c: {bootstrap_servers: "localhost:9092"}}\n'
FAULTY: Final = """
import sys
import numpy as np
from assignor_core.assignors import Assignor, RangeAssignor

class Base(Assignor):
    __slots__ = ()
    def assign(self, group):
        return self.owners(group).astype(np.int32)

def named(word, owners):
    body = {"name": word, "__slots__": (), "owners": staticmethod(owners)}
    return type(word, (Base,), body)

def fail(group):
    raise RuntimeError("out of\\nluck")

Raises = named("raises", fail)
Exits = named("exits", lambda group: sys.exit("bye"))
Short = named("short", lambda group: np.zeros(3))
Beyond = named("beyond", lambda group: np.full(4, 2))
Nobody = named("nobody", lambda group: np.full(4, -1))
Moves = named("moves", lambda group: 1 - group.owner)
class Listed(Moves):
    __slots__ = ()
    name = "listed"
    def assign(self, group):
        return [0, 0, 1, 1]
class Unpinned(Moves):
    __slots__ = ()
    name = "unpinned"
    def target(self, group, *, load, capacity, pinned):
        return self.assign(group)
class Needy(Moves):
    __slots__ = ()
    name = "needy"
    def __init__(self, needed):
        self.needed = needed
Renamed = Moves
NoClass = 7
"""
# The class of each assignor, and what its groups' decision says; None: a plan.
FAULTS: Final = {
    "raises": ("Raises", "failed: RuntimeError: out of luck"),
    "exits": ("Exits", "failed: SystemExit: bye"),
    "short": ("Short", "SHAPE: int32 [4] was expected, not int32 [3]"),
    "listed": ("Listed", "SHAPE: int32 [4] was expected, not int64 [4]"),
    "beyond": ("Beyond", "MEMBER_RANGE: 4 rows are with members that do not exist"),
    "needy": ("Needy", "failed: TypeError"),
    "renamed": ("Renamed", "is no Assignor with this name"),
    "no-class": ("NoClass", "failed: TypeError"),
    "missing": ("Missing", "failed: AttributeError"),
    "observed": ("Moves", "the name is reserved"),
    "Upper": ("Moves", "the name is reserved, declared twice, or not of a-z"),
}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package with one module: its files as pip writes them, in a folder on the path."""

    def add(package: str, assignors: Mapping[str, str], code: str) -> None:
        lines = [f"{name} = {package}:{value}\n" for name, value in assignors.items()]
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("".join(["[evenlag.assignors]\n", *lines]))
        (folder / f"{package}.py").write_text(code)
        monkeypatch.syspath_prepend(str(folder))
        forget()

    def forget() -> None:
        installed.declared_assignors.cache_clear()
        installed.load_assignor.cache_clear()

    yield add
    monkeypatch.undo()
    forget()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def install_example(install: Install) -> None:
    project = tomllib.loads(block("toml"))["project"]
    ((name, value),) = project["entry-points"]["evenlag.assignors"].items()
    module, _, class_name = value.partition(":")
    install(module, {name: class_name}, block("python"))


def rule(assignor: str, more: str = "") -> str:
    return f"{HEAD}groups:\n  - {{match: g, mode: auto, assignor: {assignor}{more}}}\n"


def passes(gate_name: str, settings: Mapping[str, Any], observed: Any) -> bool:
    (gate,) = (gate for gate in GATES if gate.name == gate_name)
    return gate.comparison.holds(observed, gate.limit.allowed(settings, {}))


def test_the_example_plans_its_groups_and_gates_judge_the_plan(install: Install) -> None:
    """Computed manually: m-1 gets 900 records, m-2 then 800, 10 and 10; counts of 1 and 3 differ by 2."""
    text = HEAD + block("yaml").replace("payments-*", "g").replace("shadow", "auto")
    with pytest.raises(
        PolicyError, match=r"no assignor 'largest-first'; .*; no installed package declares it"
    ):
        parse_policy(text, environ={})
    install_example(install)
    decision, head, owners = decide(SKEWED, members(), plan_context(text))
    assert (decision["decision"], decision["reason"]) == ("PROPOSED", None)
    assert owners == {0: "m-1", 1: "m-2", 2: "m-2", 3: "m-2"}
    assert head is not None
    assert (head["assignor"], head["violations"], head["count_gap"]) == ("largest-first", [], 2)
    payload = HintPayload.decode(head["payload"].encode())
    assert payload.assignment == {"m:m-1": {TOPIC_IDS["t"]: [0]}, "m:m-2": {TOPIC_IDS["t"]: [1, 2, 3]}}
    settings = json.loads(head["settings"])
    assert passes("count_slack", settings, head["count_gap"])
    assert not passes("count_slack", settings | {"count_slack": 0}, head["count_gap"])
    candidate = parse_candidate("largest-first")
    assert (candidate.uses_lag, candidate.protocol) == (True, "EAGER")
    policy = parse_policy(text, environ={}).policy
    assert foreign_assignor_faults(policy) == []
    assert [each.verdict for each in check_assignors(policy)] == ["ok"]


def test_faults_stay_with_their_groups(install: Install) -> None:
    install("faulty", {name: value for name, (value, _) in FAULTS.items()}, FAULTY)
    for name, (_, expected) in FAULTS.items():
        context = plan_context(rule(name))
        decision, head, _ = decide(SKEWED, members(), context)
        assert (decision["decision"], head) == ("FAILED", None), name
        assert decision["reason"].startswith(f"the assignor {name} of faulty failed: "), decision["reason"]
        assert expected in decision["reason"]
        assert "\n" not in decision["reason"]
        assert decision["traceback"] is None
    policy = parse_policy(rule("missing", ", load: lag, capacities: measured"), environ={}).policy
    (finding,) = check_assignors(policy)
    assert finding.verdict == "warning"
    assert "the assignor missing of faulty failed: AttributeError" in finding.message
    compared = f"{HEAD}comparison: {{policies: [missing]}}\n"
    assert len(foreign_assignor_faults(parse_policy(compared, environ={}).policy)) == 1


def test_an_assignment_that_breaks_a_rule_is_a_plan_that_the_checker_rejects(install: Install) -> None:
    install("breaking", {"nobody": "Nobody", "unpinned": "Unpinned", "moves": "Moves"}, FAULTY)
    _, head, _ = decide(SKEWED, members(), plan_context(rule("nobody")))
    assert head is not None
    assert [each.partition(":")[0] for each in head["violations"]] == ["UNASSIGNED"]
    assert not passes("no_violations", json.loads(head["settings"]), len(head["violations"]))
    unknown = lag([900, None, 10, 10])
    decision, _, _ = decide(unknown, members(), plan_context(rule("unpinned")))
    assert "pinned partitions would move" in decision["reason"]
    _, head, owners = decide(unknown, members(), plan_context(rule("moves")))
    assert head is not None
    assert owners[1] == "m-1"


def test_names_of_evenlag_and_names_of_two_packages_are_refused(install: Install) -> None:
    install("thief", {"range": "Raises", "twice": "Moves"}, FAULTY)
    install("other", {"twice": "Moves"}, FAULTY)
    assert find_assignor("range") is RangeAssignor
    with pytest.raises(
        ForeignAssignorError, match=r"the assignor twice of other, thief failed: .* declared twice"
    ):
        find_assignor("twice")
    policy = parse_policy(rule("range"), environ={}).policy
    assert foreign_assignor_faults(policy) == [
        "the assignor range of thief is not used: the name is evenlag's own"
    ]


def test_an_executor_without_the_package_fails_its_groups_alone(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_example(install)
    # As Spark sends it.
    context = pickle.loads(pickle.dumps(plan_context(rule("largest-first"))))  # noqa: S301 - our own
    monkeypatch.setattr(installed, "declared_assignors", dict)
    monkeypatch.setattr("assignor_core.assignors.declared_assignors", dict)
    decision, _, _ = decide(SKEWED, members(), context)
    assert decision["decision"] == "FAILED"
    assert decision["reason"].startswith("no assignor 'largest-first'; ")
