"""Which rule holds, why, and where every setting comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from assignor_core.objective import Load
from evenlag.cli.app import app
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.loader import explain_group, parse_policy
from tests.evenlag.policy.test_loader import POLICY

if TYPE_CHECKING:
    from pathlib import Path

RULES = (
    POLICY
    + """  - match: "checkout-*"
    mode: auto
    load: mix
    capacities:
      - {match: "*-large-*", capacity: 4}
      - {match: "/pod-[0-3]/", capacity: 2}
    gates:
      cooldown_s: 60
"""
)


def test_the_rule_that_holds_is_told_with_the_ones_passed_over() -> None:
    loaded = parse_policy(RULES, environ={})
    found = explain_group(loaded, "other", "checkout-eu")
    assert (found.rule_number, found.rule_line, found.match) == (4, 15, "checkout-*")
    assert [number for number, _, _ in found.passed_over] == [1, 2, 3]
    assert found.passed_over[1][2] == "holds on orders only"
    assert found.passed_over[2][2] == "checkout-eu does not fit the expression"
    shown = {setting.name: (setting.value, setting.source) for setting in found.settings}
    assert shown["mode"] == ("auto", "rule 4, line 16")
    assert shown["gates.cooldown_s"] == (60, "rule 4, line 22")
    assert shown["gates.min_breaches"] == (1, "default")
    assert shown["max_moves"] == (1000, "default")
    assert set(shown) > set(GroupSettings.model_fields) - {"gates", "back_off"}


def test_the_environment_and_the_defaults_are_named_as_sources() -> None:
    loaded = parse_policy(RULES, environ={"EVENLAG_MAX_MODE": "approve"})
    shown = {setting.name: setting for setting in explain_group(loaded, "orders", "checkout-1").settings}
    assert shown["mode"].value == "approve"
    assert shown["mode"].source == "max_mode (EVENLAG_MAX_MODE) allows no auto"
    found = explain_group(loaded, "orders", "else")
    assert (found.rule_number, {setting.source for setting in found.settings}) == (None, {"default"})
    in_file = parse_policy("max_mode: observe\n" + RULES.lstrip(), environ={})
    assert explain_group(in_file, "orders", "else").settings[0].source == "max_mode (line 1) allows no shadow"


def test_approvers_are_explained_by_rule_cluster_and_variable() -> None:
    text = (
        POLICY.replace("bootstrap_servers:", "approvers: ada, grace\n    bootstrap_servers:", 1)
        + """\
  - match: billing
    approvers: [linus]
"""
    )

    def tail(group: str, **environ: str) -> tuple[object, str]:
        found = explain_group(parse_policy(text, environ=environ), "orders", group).settings[-1]
        assert found.name == "approvers"
        return found.value, found.source

    line = text.splitlines().index("    approvers: [linus]") + 1
    number = len(parse_policy(text, environ={}).policy.groups)
    assert tail("billing") == (["linus"], f"rule {number}, line {line}")
    cluster_line = text.splitlines().index("    approvers: ada, grace") + 1
    assert tail("else") == (["ada", "grace"], f"cluster orders, line {cluster_line}")
    variable = "EVENLAG_CLUSTER__ORDERS__APPROVERS"
    assert tail("else", **{variable: "eve"}) == (["eve"], f"cluster orders, {variable}")
    assert explain_group(parse_policy(POLICY, environ={}), "orders", "else").settings[-1].value is None


@pytest.mark.parametrize(
    ("instance", "capacity"),
    [("a-large-1", 4.0), ("pod-3", 2.0), ("pod-4", 1.0), ("pod-33", 1.0), (None, 1.0)],
)
def test_a_members_capacity_goes_by_its_instance_id(instance: str | None, capacity: float) -> None:
    settings = parse_policy(RULES, environ={}).policy.group_settings("orders", "checkout-eu")
    assert settings.load is Load.MIX
    assert settings.capacity_of(instance) == capacity


def test_the_command_explains_and_prints_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "evenlag.yaml"
    path.write_text(RULES)
    runner = CliRunner()
    asked = ["policy", "explain", "checkout-eu", "--config", str(path)]
    done = runner.invoke(app, [*asked, "--cluster", "orders"], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "Rule 4 (checkout-*), line 15, is the first that matches checkout-eu on orders" in done.output
    assert "*-large-*: 4, /pod-[0-3]/: 2" in done.output
    assert "rule 4, line 22" in done.output
    assert '"evenlag policy"' in runner.invoke(app, ["policy", "schema"]).output
