"""`evenlag policy`, `evenlag dags`, and the policy that `evenlag run` makes up without a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from evenlag.cli.cluster_target import policy_text
from evenlag.policy.loader import parse_policy

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.fixtures.command import Evenlag

POLICY = """\
lake: s3a://bucket/lake
clusters:
  orders:
    bootstrap_servers: a:9092
    kafka: {security_protocol: SASL_SSL, sasl_mechanism: GSSAPI, sasl_plain_password: {env: ORDERS_PASSWORD}}
groups:
  - match: payments-*
    mode: auto
    max_moves: 12
"""


def test_a_valid_policy_is_shown_as_it_was_understood(evenlag: Evenlag, tmp_path: Path) -> None:
    (tmp_path / "evenlag.yaml").write_text(POLICY, encoding="utf-8")
    answer = evenlag("policy", "check")
    assert answer.exit_code == 0
    for text in ("is valid", "SASL_SSL", "payments-*", "auto", "all others", "shadow"):
        assert text in answer.stdout
    content = json.loads(evenlag("policy", "check", "--json").stdout)
    assert content["policy"]["groups"][0]["max_moves"] == 12


def test_a_rule_that_never_applies_is_a_warning(evenlag: Evenlag, tmp_path: Path) -> None:
    rules = POLICY + "  - match: payments-eu-*\n  - match: orders\n"
    (tmp_path / "evenlag.yaml").write_text(rules, encoding="utf-8")
    answer = evenlag("policy", "check")
    assert answer.exit_code == 0
    (line,) = answer.stderr.splitlines()
    assert line.startswith("warning: rule 2, 'payments-eu-*' (line 10), never applies: rule 1, 'payments-*'")
    assert len(json.loads(evenlag("policy", "check", "--json").stdout)["warnings"]) == 1


def test_a_mistake_in_the_policy_is_told_with_its_line(evenlag: Evenlag, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY.replace("max_moves", "max_move"), encoding="utf-8")
    answer = evenlag("policy", "check", "p.yaml")
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert "line 9" in answer.stderr
    assert "did you mean 'max_moves'?" in answer.stderr


def test_secrets_are_looked_for_only_when_asked_and_never_shown(evenlag: Evenlag, tmp_path: Path) -> None:
    (tmp_path / "evenlag.yaml").write_text(POLICY, encoding="utf-8")
    missing = evenlag("policy", "check", "--secrets")
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    assert "ORDERS_PASSWORD is not set" in missing.stderr
    there = evenlag("policy", "check", "--secrets", ORDERS_PASSWORD="s3cret")
    assert there.exit_code == 0
    assert "s3cret" not in there.output


def test_without_a_file_only_the_named_groups_are_published_for() -> None:
    text = policy_text("a:1", "k", lake=None, groups=("payments", "/x-[0-9]/"), publish=True)
    published = parse_policy(text).policy
    assert published.group_settings("k", "payments").mode.value == "auto"
    assert published.group_settings("k", "x-1").mode.value == "auto"
    assert published.group_settings("k", "other").mode.value == "observe"
    text = policy_text("a:1", "k", lake=None, groups=("payments",), publish=False)
    planned = parse_policy(text).policy
    assert planned.group_settings("k", "payments").mode.value == "shadow"
    everybody = parse_policy(policy_text("a:1", "k", lake=None, groups=(), publish=False)).policy
    assert everybody.group_settings("k", "anybody").mode.value == "shadow"


def test_a_secret_of_the_environment_stays_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENLAG_KAFKA_SASL_PLAIN_PASSWORD", "s3cret")
    monkeypatch.setenv("EVENLAG_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("EVENLAG_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("EVENLAG_KAFKA_SASL_PLAIN_USERNAME", "evenlag")
    loaded = parse_policy(policy_text("a:1", "k", lake=None, groups=(), publish=False))
    assert "s3cret" not in loaded.text
    assert "s3cret" not in repr(loaded.policy)
    assert loaded.policy.clusters["k"].kafka["security_protocol"] == "SASL_SSL"


def test_the_installed_dag_files_import_by_a_name_of_their_own(evenlag: Evenlag, tmp_path: Path) -> None:
    folder = tmp_path / "airflow-dags"
    folder.mkdir()
    (folder / "somebody_else.py").write_text("", encoding="utf-8")
    (tmp_path / "evenlag.yaml").write_text(POLICY, encoding="utf-8")
    for _ in range(2):  # the second time is an update
        answer = evenlag("dags", "install", folder)
        assert answer.exit_code == 0, answer.output
    assert sorted(path.name for path in folder.iterdir()) == ["evenlag_dags", "somebody_else.py"]
    code = (
        "import sys; from airflow.dag_processing.dagbag import DagBag\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        f"bag = DagBag(dag_folder={str(folder)!r})\n"
        "print(bag.import_errors, sorted(bag.dags), 'dags' in sys.modules)\n"
    )
    answer_of_airflow = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"AIRFLOW_HOME": str(tmp_path / "home"), "EVENLAG_CONFIG": str(tmp_path / "evenlag.yaml"),
           "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300"},
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    made = ["assignment_audit", "lag_rebalance__orders", "plan_approval", "table_maintenance"]
    assert answer_of_airflow.stdout.splitlines()[-1] == f"{{}} {made} False"


def test_a_folder_that_is_not_ours_is_not_overwritten(evenlag: Evenlag, tmp_path: Path) -> None:
    theirs = tmp_path / "evenlag_dags"
    theirs.mkdir()
    (theirs / "keep.py").touch()
    answer = evenlag("dags", "install", tmp_path)
    assert answer.exit_code == 2
    assert (theirs / "keep.py").exists()
