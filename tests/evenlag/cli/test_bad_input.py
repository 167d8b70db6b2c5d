"""Mistakes in a call: one line on standard error that names the thing, and the documented exit code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import JobError
from evenlag.lake.tables import SNAPSHOTS
from tests.support.each import for_each
from tests.support.lakes.audit_lake import GROUP, Seen, at, snapshot_id, write_audit
from tests.support.lakes.command_lake import APPLIED_PLAN, write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.command import Evenlag

TOPIC = "t"
NO_LAKE = [
    *((("report", "--hours", text), "--hours") for text in ("inf", "nan", "1e308", "0", "-1", "x")),
    *((("plans", "--days", text), "--days") for text in ("900000", "-1", "1.5", "9" * 5_000)),
    *((("audit", "churn", "--max-gap", text), "--max-gap") for text in ("inf", "nan", "-1", "1e300")),
    *((("doctor", "--timeout", text), "--timeout") for text in ("inf", "nan", "0")),
    *((("doctor", "--max-age", text), "--max-age") for text in ("0", "1e9", "99999999999999")),
    *((("lag", "--limit", text), "--limit") for text in ("0", "99999999999999999999", "")),
    *(
        (("audit", "owner", "g", "--at", text), "--at")
        for text in ("0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "0001-01-01", "9999-12-31", "noon")
    ),
    *((("compare", "--from", text), "--from") for text in ("0001-01-01", "9999-12-31", "2026-02-30")),
    *((("compare", "run", "--day", text), "--day") for text in ("0001-01-01", "9999-12-31")),
    *((("run", "-b", text), "-b") for text in ("", "host:99999", "host:port", "host:", "a:1,,b:1", "a b:1")),
    (("hints", "-b", "host:0"), "has no port from 1 to 65,535"),
    (("run", "-b", "a:1", "--cluster", "[/x]"), "'[/x]' is not a valid cluster name"),
    (("hints", "-b", "a:1", "--hint-topic", "a b"), "'a b' is not a valid topic name"),
    (("run", "-b", "a:1", "--group", "/[/"), "/[/ is not a regular expression"),
    (("lag", "--lake", ""), "--lake"),
    (("lag", "--cluster", ""), "--cluster"),
    (("lag", ""), "must not be empty"),
    (("lag", "a\udcffb"), "is not UTF-8"),
    (("plans", "--group", ""), "--group"),
    (("plans", "xyz"), "'xyz' is no plan"),
    (("audit", "churn", "--export", "no/folder/x.csv"), "the folder 'no/folder' does not exist"),
    (("audit", "churn", "--export", "x.txt"), "'x.txt' must end in .csv, .parquet or .json"),
    (("report", "--file", "no/x.html"), "the folder 'no' does not exist"),
    (("report", "--file", "."), "is a folder"),
    (("doctor", "--airflow-url", "localhost"), "'localhost' is no URL"),
    (("doctor", "--freshness-only", "--only", "lake"), "--freshness-only cannot be combined with --only"),
    *(
        ((*words, "--remote", url), message)
        for words in (("run", "-b", "a:1"), ("audit", "build"), ("compare", "run"), ("lake", "maintain"))
        for url, message in (
            ("sc://h/;token=s3cret", "or EVENLAG_SPARK_TOKEN to a token"),
            ("sc://u:s3cret@h:15002", "set EVENLAG_SPARK_TOKEN to a token, and write sc://HOST:PORT"),
        )
    ),
    *(
        (("run", "-b", "a:1", "--remote", url), message)
        for url, message in (
            ("", "does not begin with sc://"),
            ("localhost:15002", "does not begin with sc://: write sc://HOST:PORT"),
            ("sc:/h", "does not begin with sc://"),
            ("spark://h:7077", "a Spark master, which EVENLAG_SPARK_MASTER takes"),
            ("sc://:15002", "no host"),
            ("sc://h:99999", "the port is no number from 1 to 65,535"),
            ("sc://h:0", "no port from 1 to 65,535"),
            ("sc://h:1/path", "only parameters may follow the port"),
            ("sc://h/;use_ssl", "a parameter is not key=value"),
            ("sc://h/;use_sll=true", "did you mean 'use_ssl'?"),
            ("sc://h/;authorization=s3cret", "set EVENLAG_SPARK_REMOTE to a URL with 'authorization'"),
        )
    ),
    *(
        (("run", "-b", "a:1", "--watch", "--every", text), "write e.g. 30, 90s, 5min or 1h")
        for text in ("0", "-1", "0.5s", "25h", "5 days", "nan", "1e3", "", "9" * 5_000)
    ),
    (("run", "-b", "a:1", "--every", "5"), "--every goes with --watch"),
    (("assign", "--set", "min_gain=nan", "-"), "min_gain must be from 0 to below 1"),
    (("assign", "--set", "max_moves=-1", "-"), "max_moves must be from 0"),
    (("policy", "check", "x" * 300), "it is too long"),
]


@for_each(NO_LAKE, lambda case: " ".join(case[0])[:40])
def test_a_mistake_in_a_call_is_one_line(case: tuple[tuple[str, ...], str], evenlag: Evenlag) -> None:
    words, shown = case
    answer = evenlag(*words)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1
    assert shown in answer.stderr
    assert len(answer.stderr) < 400
    assert "s3cret" not in answer.stderr


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001  # it writes
    """Return a lake of four audited snapshots."""
    lake = tmp_path_factory.mktemp("audited")
    write_audit(lake, [Seen({"a1": (0, 1), "b1": (2, 3)})] * 4)
    times = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")
    head = {"cluster": "c", "kafka_cluster_id": "k"}
    markers = [
        head
        | {"day": at(n).date(), "snapshot_id": snapshot_id(n), "slot": at(n)}
        | dict.fromkeys(times, at(n))
        for n in range(4)
    ]
    write_rows(lake, SNAPSHOTS, markers)
    return lake


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("owner", GROUP, "--topic", f"{TOPIC}x"),
            f"no topic '{TOPIC}x' at that moment; did you mean '{TOPIC}'?",
        ),
        (("owner", GROUP, "--partition", "99"), "has no partition 99 at that moment; the highest is 3"),
        (("owner", GROUP, "--topic", TOPIC, "--partition", "4"), f"no partition 4 of '{TOPIC}'"),
        (("owner", "gg"), "did you mean"),
        (
            ("churn", "--from", "2001-01-01", "--to", "2001-01-02"),
            "no snapshot of c was taken from 2001-01-01",
        ),
        (("churn", GROUP, "--from", "2100-01-01"), "no snapshot of c was taken"),
        (
            ("adherence", "--from", "2100-01-01", "--to", "2100-01-02"),
            "the last before it ended at 2026-11-21",
        ),
        (("anomalies", "--from", "2100-01-01", "--to", "2100-01-02"), "no snapshot of c was taken"),
        (("churn", "--cluster", "d"), "no cluster 'd'"),
    ],
)
def test_what_the_audit_does_not_know_is_said(
    evenlag: Evenlag, audited: Path, words: tuple[str, ...], message: str
) -> None:
    answer = evenlag("audit", *words, "--lake", audited)
    assert (answer.exit_code, answer.stdout, answer.stderr.count("\n")) == (4, "", 1)
    assert message in answer.stderr


@pytest.mark.jvm
def test_a_partition_that_is_there_is_shown(evenlag: Evenlag, audited: Path) -> None:
    answer = evenlag("audit", "owner", GROUP, "--topic", TOPIC, "--partition", "3", "--lake", audited)
    assert (answer.exit_code, "b1" in answer.stdout, "a1" in answer.stdout) == (0, True, False)


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("plans", APPLIED_PLAN, "--group", "other"), 4, "belongs to the group 'payments', not 'other'"),
        (("plans", APPLIED_PLAN, "--days", "3"), 2, "go with the list of plans, not with one PLAN"),
        (("plans", APPLIED_PLAN, "--limit", "3"), 2, "go with the list of plans, not with one PLAN"),
        (("report", "payments", "--to", "2100-01-01"), 4, "no snapshot of orders was taken in the 24 hours"),
        (("report", "payments", "--to", "1999-01-01"), 4, "orders up to 1999-01-01"),
    ],
)
def test_options_that_contradict_are_refused(
    evenlag: Evenlag, lake: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    answer = evenlag(*words, "--lake", lake)
    assert (answer.exit_code, answer.stdout, answer.stderr.count("\n")) == (code, "", 1)
    assert message in answer.stderr


@pytest.mark.jvm
def test_a_plan_of_the_group_that_is_asked_for_is_shown(evenlag: Evenlag, lake: Path) -> None:
    assert evenlag("plans", APPLIED_PLAN, "--group", "payments", "--lake", lake).exit_code == 0


def test_a_lake_that_is_a_file_is_said_to_be_one(evenlag: Evenlag, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    answer = evenlag("lag", "--lake", tmp_path / "file")
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert "is a file: name the folder of the tables" in answer.stderr


def test_the_exit_codes_that_help_names_are_those_that_errors_have(evenlag: Evenlag) -> None:
    def below(kind: type[JobError]) -> set[int]:
        return {kind.exit_code}.union(*(below(each) for each in kind.__subclasses__()))

    message = " ".join(evenlag("--help").stdout.split()).partition("Exit codes: ")[2]
    assert {int(code) for code in re.findall(r"(\d) [a-z]", message)} == {0} | below(JobError)
