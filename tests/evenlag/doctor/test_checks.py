"""Each check's judgement on plain values: what is well, what is not, and that it says what to do."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.doctor import runner
from evenlag.doctor.kafka_checks import (
    check_answer,
    check_assignors,
    check_auto_create,
    check_broker_assignors,
    check_clock,
    check_cluster_id,
    check_commits,
    check_extra,
    check_joins,
    check_together,
    check_unmatched,
    check_versions,
    describe_modes,
    describe_paths,
    expiry_findings,
    hint_topic_findings,
    missing_operations,
    records_findings,
    split_server,
)
from evenlag.doctor.model import Check, Finding, Lane, Verdict, ok
from evenlag.doctor.policy_checks import check_rules, check_secrets
from evenlag.doctor.runner import run_lanes
from evenlag.kafka.connection import Grants
from evenlag.policy.loader import parse_policy
from evenlag.publishing.hint_topic import ForeignRecords, TopicState
from tests.evenlag.doctor.verdicts import NOW, worst
from tests.support.each import for_each

if TYPE_CHECKING:
    from pathlib import Path

    from evenlag.policy.loader import LoadedPolicy


def policy(rules: str = "", kafka: str = "{}") -> LoadedPolicy:
    text = f'lake: /lake\nclusters:\n  orders:\n    bootstrap_servers: "a:1"\n    kafka: {kafka}\n'
    return parse_policy(text + (f"groups:\n{rules}" if rules else ""), environ={})


# Policy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ('match: "*", mode: observe', "match: billing, mode: auto", "warning"),
        ('match: "pay-*"', "match: pay-in", "warning"),
        ('match: "pay-*", clusters: orders', "match: pay-in", "warning"),
        ('match: "pay-*"', 'match: "pay-??-[ab]*"', "warning"),
        ('match: "pay-?"', 'match: "pay-*"', "ok"),
        ('match: "*-eu"', 'match: "pay-*"', "ok"),
        ("match: /pay-.*/", 'match: "pay-*"', "ok"),
        ("match: /pay-.*/", "match: pay-in", "warning"),
        ('match: "pay-*"', 'match: "*"', "ok"),
        ("match: pay-in", 'match: "pay-*"', "ok"),
    ],
)
def test_a_rule_that_never_holds_is_told_with_its_line(first: str, second: str, verdict: str) -> None:
    found = check_rules(policy(f"- {{{first}}}\n- {{{second}}}\n"))
    assert worst(found) == verdict
    if verdict == "warning":
        assert "rule 2" in found[0].message
        assert "(line 8)" in found[0].message


def test_a_secret_that_is_not_there_and_one_that_all_may_read_are_told_without_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "password"
    secret.write_text("hush-hush", encoding="utf-8")
    secret.chmod(0o644)
    monkeypatch.delenv("NOT_SET", raising=False)
    kafka = f"{{proxy_url: {{file: {secret}}}, socks5_proxy: {{env: NOT_SET}}}}"
    found = check_secrets(policy(kafka=kafka).policy, ["orders"])
    assert sorted(one.verdict.value for one in found) == ["failed", "warning"]
    assert "hush-hush" not in str(found)
    assert any("NOT_SET" in one.message for one in found)
    secret.chmod(0o600)
    monkeypatch.setenv("NOT_SET", "now-it-is")
    assert worst(check_secrets(policy(kafka=kafka).policy, ["orders"])) == "ok"


# Brokers --------------------------------------------------------------------------------------------------


def test_every_dead_bootstrap_server_is_named() -> None:
    found = check_answer(["127.0.0.1:1", "nowhere"])
    assert [one.verdict.value for one in found[:2]] == ["failed", "failed"]
    assert "127.0.0.1:1" in found[0].message
    assert "no port" in found[1].message


def test_a_server_is_split_at_its_last_colon() -> None:
    assert split_server("[::1]:9092") == ("::1", 9092)
    assert split_server("SSL://b-1:9093") == ("b-1", 9093)


@pytest.mark.parametrize(("days", "verdict"), [(-1, "failed"), (10, "warning"), (90, "ok")])
def test_a_certificate_is_judged_by_how_long_it_lasts(days: int, verdict: str) -> None:
    until = NOW + timedelta(days=days)
    assert worst(expiry_findings("b:1", {"notAfter": f"{until:%b %d %H:%M:%S %Y} GMT"}, NOW)) == verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(0.2, "ok"), (-8, "warning"), (90, "failed")])
def test_clocks_may_differ_a_little(seconds: float, verdict: str) -> None:
    assert worst(check_clock(seconds)) == verdict


def test_the_cluster_is_the_one_that_the_lake_knows() -> None:
    assert worst(check_cluster_id("A", None)) == "ok"
    assert worst(check_cluster_id("A", {"kafka_cluster_id": "A"})) == "ok"
    assert worst(check_cluster_id("A", {"kafka_cluster_id": "B"})) == "failed"


def test_an_old_broker_lacks_what_evenlag_asks() -> None:
    old = {"Metadata": (0, 9), "OffsetFetch": (0, 7), "ListOffsets": (0, 5), "DescribeGroups": (0, 5)}
    found = check_versions(old)
    assert worst(found) == "failed"
    assert any(one.message.startswith("DescribeCluster is offered up to version none") for one in found)


ASSIGNORS, SIGNING = "group.consumer.assignors", "evenlag.required.signing"
PLUGIN = "evenlag.broker.EvenlagAssignor"
FIRST, LAST, ABSENT = f"{PLUGIN}, uniform,range", f"uniform,range,{PLUGIN}", "uniform,range"


@for_each(
    [
        ("absent", {1: {ASSIGNORS: ABSENT}, 2: {ASSIGNORS: ABSENT}}, ["ok no broker has evenlag's plug-in"]),
        ("last", {1: {ASSIGNORS: LAST}, 2: {ASSIGNORS: LAST}}, ["ok evenlag is in"]),
        # Kafka hides the value of a plug-in's setting, and names it if it is set.
        ("first", {n: {ASSIGNORS: FIRST, SIGNING: None} for n in (1, 2)}, ["ok evenlag is first"]),
        ("open", {n: {ASSIGNORS: FIRST} for n in (1, 2)}, ["warning brokers 1, 2: evenlag is first"]),
        (
            "rolling",
            {1: {ASSIGNORS: LAST}, 2: {ASSIGNORS: FIRST}, 3: {ASSIGNORS: LAST}},
            [f"warning {ASSIGNORS} differs", "warning broker 2: evenlag is first"],
        ),
        ("partly", {1: {ASSIGNORS: LAST}, 2: {ASSIGNORS: ABSENT}}, [f"warning {ASSIGNORS} differs"]),
        ("one hidden", {1: {}, 2: {ASSIGNORS: LAST}}, ["skipped broker 1: the", "ok evenlag is in"]),
        ("hidden", {1: {}, 2: {}}, ["skipped the brokers' settings"]),
        ("none", {}, ["skipped the brokers' settings"]),
    ],
    name=lambda case: case[0],
)
def test_lists_of_assignors_are_compared(
    case: tuple[str, dict[int, dict[str, str | None]], list[str]],
) -> None:
    _, settings, expected = case
    found = check_broker_assignors(settings)
    worst(found)
    shown = [f"{one.verdict.value} {one.message}" for one in found]
    assert len(shown) == len(expected), shown
    assert all(map(str.startswith, shown, expected)), shown


# Permissions, topics, groups ------------------------------------------------------------------------------


def test_what_is_missing_is_granted_by_a_line_to_copy() -> None:
    missing = missing_operations(["DESCRIBE"], ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"))
    assert Grants(("a:1", "b:2"), "User:me").line(missing, "--topic h") == (
        "kafka-acls.sh --bootstrap-server a:1,b:2 --add --allow-principal 'User:me' "
        "--operation Read --operation DescribeConfigs --topic h"
    )
    assert missing_operations(None, ("READ",)) == ("READ",)


@pytest.mark.parametrize(
    ("settings", "replicas", "plan_bytes", "expected"),
    [
        ({"cleanup.policy": "delete"}, 3, None, "cleanup.policy=delete, not compact"),
        ({"cleanup.policy": "compact,delete"}, 3, None, "cleanup.policy=compact,delete, not compact"),
        ({"compression.type": "producer"}, 3, None, "compression.type=producer, not uncompressed"),
        ({"cleanup.policy": "compact"}, 1, None, "one replica"),
        ({"cleanup.policy": "compact", "min.insync.replicas": "3"}, 3, None, "no broker may be missing"),
        ({"cleanup.policy": "compact", "max.message.bytes": "1000"}, 3, 900, "a record holds 1,000"),
    ],
)
def test_the_hint_topic_s_faults_are_told(
    settings: dict[str, str | None], replicas: int, plan_bytes: int | None, expected: str
) -> None:
    [found] = hint_topic_findings(
        settings, replication_factor=replicas, num_brokers=3, largest_plan_bytes=plan_bytes
    )
    assert expected in found.message
    assert found.remedy


def test_a_well_made_hint_topic_has_no_fault() -> None:
    settings = {"cleanup.policy": "compact", "min.insync.replicas": "2", "max.message.bytes": "1048588"}
    assert not hint_topic_findings(settings, replication_factor=3, num_brokers=3, largest_plan_bytes=40_000)
    setting = "auto.create.topics.enable"
    assert worst(check_auto_create({1: {setting: "false"}, 2: {}}, "h")) == "ok"
    assert worst(check_auto_create({1: {setting: "false"}, 2: {setting: "true"}}, "h")) == "warning"
    assert worst(check_auto_create({1: {}}, "h")) == worst(check_auto_create({}, "h")) == "skipped"


def test_the_command_that_repairs_the_hint_topic_is_told() -> None:
    [found] = hint_topic_findings(
        {"cleanup.policy": "compact,delete"},
        replication_factor=3,
        num_brokers=3,
        largest_plan_bytes=None,
        name="hints",
        servers=("a:1", "b:2"),
    )
    assert found.remedy == (
        "kafka-configs.sh --bootstrap-server a:1,b:2 --alter --entity-type topics --entity-name hints "
        "--add-config cleanup.policy=compact"
    )


def test_records_that_are_not_from_evenlag_are_told() -> None:
    clean = TopicState(exists=True, hints={}, unreadable={}, num_partitions=3)
    assert worst(records_findings(clean, 0)) == "ok"
    for poisoned in (
        replace(clean, unreadable={"g": "no line feed"}),
        replace(clean, unreadable_loads={"g": "not signed"}),
        replace(clean, foreign=ForeignRecords(1, 9)),
        replace(clean, num_compressed=1),
    ):
        assert worst(records_findings(poisoned, 0)) == "warning"
        assert all(finding.remedy for finding in records_findings(poisoned, 0))


RULES = """\
- {match: "auto-*", mode: auto}
- {match: quiet, mode: observe}
- {match: slip-of-the-pen, mode: auto}
"""


def test_groups_are_held_against_the_rules() -> None:
    loaded = policy(RULES)
    groups: dict[str, dict[str, Any]] = {
        "auto-1": {"assignor": "range", "members": [{}]},
        "auto-2": {"assignor": "evenlag", "members": [{}]},
        "auto-empty": {"assignor": "", "members": []},
        "auto-connect": {"assignor": "sessioned", "protocol_type": "connect", "members": [{}]},
        "auto-share": {"assignor": "simple", "group_type": "share", "members": [{}]},
        "quiet": {"assignor": "range", "members": [{}]},
        "other": {"assignor": "range", "members": [{}]},
    }
    assert describe_modes(loaded.policy, "orders", groups) == "1 in observe, 1 in shadow, 5 in auto"
    [deaf] = check_assignors(loaded.policy, "orders", groups)
    assert deaf.message.endswith("1 of 3 groups in approve or auto would never be hinted: auto-1 (range)")
    [unused] = check_unmatched(loaded, "orders", groups)
    assert "'slip-of-the-pen'" in unused.message
    uncommitted = {"auto-1": 3, "quiet": 9}
    [blind] = check_commits(loaded.policy, "orders", uncommitted)
    assert blind.message.endswith("the lag of 1 groups is not known: auto-1 (3)")
    assert worst(check_commits(loaded.policy, "orders", {"quiet": 9})) == "ok"


def test_topics_that_range_keeps_together_are_proposed() -> None:
    rules = "  - {match: joins, mode: shadow}\n  - {match: kept, together: [[orders, payments, other]]}\n"
    both = {"subscription": ["orders", "payments", "small", "third"]}
    alike = [{"member_id": "a", **both}, {"member_id": "b", **both}]
    apart = [{"member_id": "a", **both}, {"member_id": "b", "subscription": ["orders"]}]
    groups = {
        "joins": {"assignor": "range", "members": alike},
        "kept": {"assignor": "range", "members": alike},
        "unmatched": {"assignor": "range", "members": alike},
    }
    sizes = {"orders": 12, "payments": 12, "third": 6, "small": 1}
    loaded = policy(rules).policy
    [found] = check_together(loaded, "orders", groups, sizes)
    assert found.verdict is Verdict.WARNING
    assert found.message.endswith("in 1 groups: joins (together: [[orders, payments]])")
    for other in (
        {"joins": {"assignor": "evenlag", "members": alike}},
        {"joins": {"assignor": "range", "members": apart}},
        {"joins": {"assignor": "range", "members": [{"member_id": "a", "subscription": None}]}},
    ):
        assert worst(check_together(loaded, "orders", other, sizes)) == "ok"
    assert worst(check_together(loaded, "orders", groups, sizes | {"payments": 11})) == "ok"


def test_groups_are_counted_by_their_path_to_hints() -> None:
    def group(assignor: str | None, *clients: str, **fields: Any) -> dict[str, Any]:
        members = [{"client_id": client} for client in clients]
        return {"group_type": "classic", "assignor": assignor, "members": members, **fields}

    newer = {"group_type": "consumer"}
    groups = {
        "follows-classic": group("evenlag", "app"),
        "follows-newer": group("evenlag", "app", **newer),
        "java-newer": group("uniform", "consumer-java-newer-1", **newer),
        "librdkafka": group("range", "rdkafka"),
        "one-is-enough": group("range", "sarama", "rdkafka"),
        "sarama": group("range", "sarama", "sarama"),
        "go": group("range", "app@host (github.com/segmentio/kafka-go)"),
        "streams-classic": group("stream", "app"),
        "streams": group(None, "app", group_type="streams"),
        "share": group("simple", "app", group_type="share"),
        "connect": group("sessioned", "app", protocol_type="connect"),
        "empty": group(None),
        "rebalancing": group(None, "app"),
        "failed": group(None, "app", error="NOT_COORDINATOR"),
    }
    assert describe_paths(groups).split("; ") == [
        "2 groups follow hints",
        "1 of the consumer protocol would with evenlag as their assignor (java-newer)",
        "2 of the classic protocol would after an upgrade of their clients (librdkafka, one-is-enough)",
        "6 have no path (connect, go, sarama, share, streams and 1 more)",
        "3 show no members or no assignor now",
    ]


def test_the_extra_is_missed_where_hints_are_published_to_brokers() -> None:
    loaded = policy(RULES)
    groups = {"auto-1": {"group_type": "consumer"}, "quiet": {"group_type": "consumer"}, "auto-2": {}}
    [missing] = check_extra(loaded.policy, "orders", groups, is_installed=False)
    assert (missing.verdict, "auto-1" in missing.message, "quiet" in missing.message) == (
        Verdict.WARNING,
        True,
        False,
    )
    assert worst(check_extra(loaded.policy, "orders", groups, is_installed=True)) == "ok"
    never = policy(RULES, kafka="{}\n    temporary_member_after_s: null")
    for is_installed in (False, True):
        [chosen] = check_extra(never.policy, "orders", groups, is_installed=is_installed)
        assert chosen.verdict is Verdict.OK
        assert chosen.message.startswith(
            "temporary_member_after_s is null: 1 groups of the consumer protocol"
        )
    assert worst(check_extra(loaded.policy, "orders", {"auto-2": {}}, is_installed=False)) == "skipped"


def test_groups_that_the_temporary_member_may_not_join_are_named() -> None:
    loaded = policy(RULES)

    def group(*operations: str, assignor: str = "evenlag") -> dict[str, Any]:
        return {"assignor": assignor, "authorized_operations": list(operations)}

    groups = {
        "auto-1": group("DESCRIBE"),
        "auto-2": group("DESCRIBE", "READ"),
        "auto-3": group("DESCRIBE", assignor="range"),
        "quiet": group("DESCRIBE"),
    }
    grants = Grants(("b:9092",), "User:evenlag")
    [missing] = check_joins(loaded.policy, "orders", groups, grants)
    assert missing.verdict is Verdict.WARNING
    assert "1 groups" in missing.message
    assert "auto-1" in missing.message
    assert missing.remedy == (
        "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal 'User:evenlag' --operation Read "
        "--group auto-1, or set temporary_member_after_s: null"
    )
    never = policy(RULES, kafka="{}\n    temporary_member_after_s: null")
    assert check_joins(never.policy, "orders", groups, grants) == []


# All checks -----------------------------------------------------------------------------------------------


def test_all_checks_are_done_whatever_one_of_them_does(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, others_end, release = threading.Event(), threading.Event(), threading.Event()

    def hang() -> list[Finding]:
        hangs.set()
        release.wait(300)
        return ok("too late")

    def break_() -> list[Finding]:
        raise OSError("the wire is cut")

    fine = Check("a", "fine", lambda: ok("well"))
    lanes = [
        Lane("one", (fine, Check("a", "hangs", hang), Check("a", "after", lambda: ok("never")))),
        Lane("two", (Check("b", "breaks", break_), Check("b", "after", lambda: ok("well"))), others_end.set),
    ]
    # Time stands still until only the check that hangs is left, however busy the machine is.
    clock = SimpleNamespace(
        monotonic=lambda: 6.0 * (hangs.is_set() and others_end.is_set()), sleep=time.sleep
    )
    monkeypatch.setattr(runner, "time", clock)
    results = {result.check: result for result in run_lanes(lanes, check_timeout_s=5, timeout_s=60)}
    release.set()
    assert {name: result.verdict.value for name, result in results.items()} == {
        "a.fine": "ok",
        "a.hangs": "failed",
        "a.after": "skipped",
        "b.breaks": "failed",
        "b.after": "ok",
    }
    assert "the wire is cut" in results["b.breaks"].findings[0].message
    assert results["a.after"].findings[0].message == "a.hangs did not answer before it"
