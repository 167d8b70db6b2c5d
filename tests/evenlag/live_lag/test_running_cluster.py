"""`evenlag lag -b` on a real broker: beside Kafka's own tool, and with records whose times are known."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from sandbox.java_tools import java_command
from tests.support.commits import commit_offsets
from tests.support.hints import now_ms
from tests.support.java_client.harness import beside_broker
from tests.support.kafka_python_rejoin_fix import finish_joins
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.brokers import Brokers
    from tests.support.fixtures.command import Evenlag

pytestmark = pytest.mark.broker

REPOSITORY: Final = Path(__file__).resolve().parents[3]
_TOOL: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_MINUTE_MS: Final = 60_000
# Records of each partition, one a minute, the last one a minute ago; and how many of them are committed.
RECORDS: Final = {0: 600, 1: 500, 2: 4, 3: 20}
COMMITTED: Final = {0: 0, 1: 300, 3: 20}
# Ages of the first record that is not committed, in minutes.
AGES: Final = {0: 600, 1: 200}
# typer loads pydantic, and pyarrow pandas where it is installed; the extra `cli` does not bring it.
UNWANTED: Final = ("deltalake", "matplotlib", "pyspark", "airflow")
GONE: Final = "\x1b[2Jgone"


class Groups:
    """Two consumers of four partitions, which hold 0 and 1, and 2 and 3; and a group without members."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self.servers = brokers.bootstrap_servers
        self.topic, self.live, self.gone = f"{name}-orders", f"{name}-billing", f"{name}-{GONE}"
        self.begin_ms = now_ms()
        self.admin = KafkaAdminClient(bootstrap_servers=self.servers)
        self.admin.create_topics({self.topic: {"num_partitions": len(RECORDS)}}, wait_for_metadata=True)
        self._write()
        commits = {TopicPartition(self.topic, 0): OffsetAndMetadata(590, "", -1)}
        commit_offsets(self.admin, self.gone, commits)
        self.members = [self._join(name) for name in ("app-a", "app-b")]
        wait_until(self._is_settled, what="the group did not settle")
        self.members[0].commit(
            {TopicPartition(self.topic, n): OffsetAndMetadata(o, "", -1) for n, o in COMMITTED.items()}
        )

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.admin.close()

    def _write(self) -> None:
        # One record in a batch: the broker finds records by the times of their batches.
        producer = KafkaProducer(bootstrap_servers=self.servers, batch_size=0)
        for partition, count in RECORDS.items():
            for age in range(count, 0, -1):
                at = self.begin_ms - age * _MINUTE_MS
                producer.send(self.topic, b"x", partition=partition, timestamp_ms=at)
        producer.flush()
        producer.close()

    def _join(self, client_id: str) -> Any:
        consumer = KafkaConsumer(
            self.topic,
            group_id=self.live,
            client_id=client_id,
            bootstrap_servers=self.servers,
            enable_auto_commit=False,
            auto_offset_reset="none",
            # Nobody polls while a test looks at the group.
            max_poll_interval_ms=3_600_000,
            session_timeout_ms=300_000,
        )
        return finish_joins(consumer)

    def _is_settled(self) -> bool:
        import kafka.errors

        for member in self.members:
            # Nothing is committed yet, and nobody says where to begin.
            with contextlib.suppress(kafka.errors.NoOffsetForPartitionError):
                member.poll(100)
        return [len(member.assignment()) for member in self.members] == [2, 2]


@pytest.fixture(scope="module")
def groups(broker: Brokers) -> Iterator[Groups]:
    made = Groups(broker, f"instant{now_ms() % 100_000_000}")
    yield made
    made.close()


def ask(evenlag: Evenlag, groups: Groups, *arguments: object) -> dict[str, Any]:
    answer = evenlag("lag", "-b", groups.servers, "--json", *arguments)
    assert answer.exit_code == 0, answer.output
    content: dict[str, Any] = json.loads(answer.stdout)
    return content


def kafkas_own(groups: Groups, group: str) -> dict[int, tuple[str, str, str, str]]:
    """(committed, end, lag, consumer id) by partition, as Kafka's tool prints them."""
    command = [
        *(java_command(), "-cp", beside_broker("tools"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
        *(_TOOL, "--bootstrap-server", groups.servers, "--describe", "--timeout", "600000", "--group", group),
    ]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in printed.splitlines() if groups.topic in line]
    return {int(row[2]): (row[3], row[4], row[5], row[6]) for row in rows}


def test_each_partition_has_the_numbers_of_kafkas_own_tool(evenlag: Evenlag, groups: Groups) -> None:
    ours = {row["partition"]: row for row in ask(evenlag, groups, groups.live)["partitions"]}
    shown = kafkas_own(groups, groups.live)
    assert set(shown) == set(ours) == set(RECORDS)
    for partition, (committed, end, lag, consumer) in shown.items():
        row = ours[partition]
        expected = [None if text == "-" else int(text) for text in (committed, end, lag)]
        assert [row["committed_offset"], row["end_offset"], row["lag_records"]] == expected
        assert row["owner_member_id"] == consumer


def test_groups_are_listed_by_lag_with_what_a_plan_would_bring(evenlag: Evenlag, groups: Groups) -> None:
    answer = ask(evenlag, groups)
    assert answer["source"] == "cluster"
    found = {row["group_id"]: row for row in answer["groups"]}
    order = [row["group_id"] for row in answer["groups"]]
    assert order.index(groups.live) < order.index(groups.gone)
    live, gone = found[groups.live], found[groups.gone]
    # 600 - 0, 500 - 300 and 20 - 20; partition 2 has no commit, and nobody says what that means.
    assert (live["lag_records"], live["max_member_lag_records"], live["num_unknown_partitions"]) == (
        800,
        800,
        1,
    )
    assert live["statuses"] == {"NO_COMMIT": 1, "OK": 3}
    assert live["lag_skew"] is None
    # 600 and 200 are with one member. Partition 2 stays where it is, so 0 or 1 changes places with 3.
    assert live["plan"] == {
        "assignor": "lag-aware-sticky",
        "moves": 2,
        "max_member_lag_before_records": 800,
        "max_member_lag_after_records": 600,
        "blocker": None,
    }
    assert (gone["lag_records"], gone["num_members"], gone["group_state"]) == (10, 0, "Empty")
    assert gone["plan"]["blocker"].startswith("the group has no members")


def test_a_reset_policy_counts_partitions_without_a_commit(evenlag: Evenlag, groups: Groups) -> None:
    live = ask(evenlag, groups, groups.live, "--reset-policy", "earliest")
    # 800 of one member, 4 of the other one: 402 are the mean.
    assert (live["lag_records"], live["num_unknown_partitions"]) == (804, 0)
    assert live["lag_skew"] == pytest.approx(800 / 402)


def test_the_time_behind_is_the_age_of_the_next_record(evenlag: Evenlag, groups: Groups) -> None:
    since = now_ms()
    answer = ask(evenlag, groups, groups.live)
    times = {row["partition"]: row["time_lag_ms"] for row in answer["partitions"]}
    until = now_ms()
    for partition, age in AGES.items():
        written_at = groups.begin_ms - age * _MINUTE_MS
        # The search ends when the bracket is a twentieth wide.
        assert 0.95 * (since - written_at) <= times[partition] <= 1.05 * (until - written_at)
    assert (times[2], times[3]) == (None, 0)
    assert (answer["time_lag_ms"], answer["time_lag_at_least_ms"]) == (None, times[0])
    assert answer["num_unknown_time_lags"] == 1


def test_one_group_opens_to_its_members_and_partitions(evenlag: Evenlag, groups: Groups) -> None:
    answer = ask(evenlag, groups, groups.live)
    members = {row["client_id"]: row for row in answer["members"]}
    assert {name: row["lag_records"] for name, row in members.items()} == {"app-a": 800, "app-b": 0}
    after = {name: (row["planned_lag_records"], row["planned_partitions"]) for name, row in members.items()}
    assert sorted(after.values()) == [(200, 2), (600, 2)]
    moved = {
        row["partition"]: row["planned_owner_member_id"]
        for row in answer["partitions"]
        if row["planned_owner_member_id"]
    }
    assert len(moved) == 2
    assert moved[3] == members["app-a"]["member_id"]

    shown = evenlag("lag", groups.live, "-b", groups.servers).stdout
    assert (
        "A plan by lag-aware-sticky would bring the lag of the most loaded member from at least 800 to"
        in shown
    )
    assert members["app-a"]["member_id"] in shown
    assert "--reset-policy counts partitions without a commit" in shown


def test_hostile_names_are_printed_without_their_control_characters(evenlag: Evenlag, groups: Groups) -> None:
    shown = evenlag("lag", "-b", groups.servers, "--limit", "1000").stdout
    assert "\x1b" not in shown
    assert "\\x1b[2Jgone" in shown
    of_group = evenlag("lag", groups.gone, "-b", groups.servers).stdout
    assert "\x1b" not in of_group
    assert "No plan: the group has no members" in of_group


def test_rows_are_exported(evenlag: Evenlag, groups: Groups, tmp_path: Path) -> None:
    record = evenlag("lag", "-b", groups.servers, "--export", tmp_path / "groups.json")
    assert "rows written to" in record.stderr
    rows = {row["group_id"]: row for row in json.loads((tmp_path / "groups.json").read_text("utf-8"))}
    assert rows[groups.live]["plan_max_member_lag_after_records"] == 600
    assert rows[groups.live]["num_no_commit_partitions"] == 1
    evenlag("lag", groups.live, "-b", groups.servers, "--export", tmp_path / "partitions.csv")
    lines = (tmp_path / "partitions.csv").read_text("utf-8").splitlines()
    assert len(lines) == 1 + len(RECORDS)
    assert "planned_owner_member_id" in lines[0]


def test_a_policy_file_names_the_cluster_and_the_settings_of_its_groups(
    evenlag: Evenlag, groups: Groups, tmp_path: Path
) -> None:
    policy = tmp_path / "evenlag.yaml"
    policy.write_text(
        f"lake: {tmp_path}/lake\nclusters: {{shop: {{bootstrap_servers: '{groups.servers}', "
        "privacy: {client_ids: drop}}}\n"
        f"groups: [{{match: '{groups.live}', reset_policy: latest, max_moves: 0}}]\n",
        encoding="utf-8",
    )
    answer = json.loads(evenlag("lag", groups.live, "--live", "--config", policy, "--json").stdout)
    assert (answer["cluster"], answer["num_unknown_partitions"]) == ("shop", 0)
    assert answer["plan"]["moves"] == 0
    assert {row["client_id"] for row in answer["members"]} == {None}


def test_an_unknown_group_is_one_line_with_the_nearest_name(evenlag: Evenlag, groups: Groups) -> None:
    answer = evenlag("lag", f"{groups.live}x", "-b", groups.servers)
    assert answer.exit_code == 4
    assert f"did you mean '{groups.live}'?" in answer.stderr


def watching(groups: Groups, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "evenlag", "lag", "-b", groups.servers, "--watch", "--every", "1s"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_")}
    return subprocess.Popen(
        [*command, *arguments],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": REPOSITORY, **more},
        env=environment | {"TERM": "xterm-256color"},
    )


def test_watch_prints_a_line_of_json_for_each_snapshot_with_rates(groups: Groups) -> None:
    """Ten more records arrive while it watches, and nobody consumes."""
    with watching(groups, groups.live, "--json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        begun = time.monotonic()
        producer = KafkaProducer(bootstrap_servers=groups.servers)
        for _ in range(10):
            producer.send(groups.topic, b"x", partition=3)
        producer.flush()
        producer.close()
        deadline = begun + 600
        while (lag := json.loads(process.stdout.readline()))["lag_records"] < 810:
            assert time.monotonic() < deadline
        passed_ms = 1_000 * (time.monotonic() - begun)
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "stopped after" in shown
    assert first["arrival_rate_records_per_s"] is None
    row = next(row for row in lag["partitions"] if row["partition"] == 3)
    assert row["arrival_rate_records_per_s"] > 0
    assert (row["consume_rate_records_per_s"], row["stalled"]) == (0.0, True)
    # The first of the ten is younger than the watch.
    assert row["time_lag_ms"] < max(90_000, 1.05 * passed_ms)


def test_watch_refreshes_a_terminal_in_place(groups: Groups) -> None:
    main, other = os.openpty()
    with watching(groups, "--limit", "5", stdin=other, stdout=other, stderr=other) as process:
        os.close(other)
        shown = b""
        deadline = time.monotonic() + 600
        # The alternate screen, and the head of the table twice at its first line.
        while shown.count(b"\x1b[H") < 3:
            assert time.monotonic() < deadline, shown[-2000:]
            shown += os.read(main, 65_536)
        process.send_signal(signal.SIGINT)
        while chunk := _read_rest(main):
            shown += chunk
        assert process.wait(600) == 130
    os.close(main)
    text = shown.decode()
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") == 1
    # The last snapshot stays below the command.
    assert "Lag on kafka" in text.partition("\x1b[?1049l")[2]
    assert "trend" in text


def _read_rest(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # Linux reports the end of a terminal as an error.
        return b""


def test_reading_a_cluster_loads_no_lake_or_chart(groups: Groups) -> None:
    code = (
        "import sys\nfrom evenlag.__main__ import main\n"
        f"sys.argv = ['evenlag', 'lag', '-b', {groups.servers!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print(*(name for name in {UNWANTED} if name in sys.modules), file=sys.stderr)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env=environment,
    )
    assert done.stderr.strip() == ""
    assert groups.live in done.stdout


def test_nothing_is_written(evenlag: Evenlag, groups: Groups, tmp_path: Path) -> None:
    before = set(groups.admin.list_topics())
    evenlag("lag", "-b", groups.servers)
    assert list(tmp_path.iterdir()) == []
    assert set(groups.admin.list_topics()) == before
