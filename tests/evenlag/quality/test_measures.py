"""The measures of a snapshot: one defect at a time changes its own measure, and no other check fails."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from evenlag.policy.cluster_settings import QualitySettings
from evenlag.quality.checks import (
    CHECKS,
    COMMIT_COLUMNS,
    EARLIER_COLUMNS,
    LAG_COLUMNS,
    MEMBER_COLUMNS,
    OFFSET_COLUMNS,
    combine,
    count_partitions,
    measure_groups,
    measure_snapshot,
)
from tests.support.lakes.snapshots import NOW, commit, marker, member, offset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from evenlag.lake.tables import Table

Rows = list[dict[str, Any]]
SETTINGS = QualitySettings().model_dump(mode="json")


def arrow(table: Table, rows: Rows, columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=arrow_schema(table)).select(list(columns))


class Story:
    """A snapshot without a defect: two groups of two members on one topic of four partitions."""

    def __init__(self) -> None:
        self.marker: dict[str, Any] = marker(
            num_partitions=4,
            num_groups=2,
            started_at=NOW,
            log_start_read_at=NOW,
            commits_read_at=NOW + timedelta(seconds=1),
            end_read_at=NOW + timedelta(seconds=2),
            finished_at=NOW + timedelta(seconds=3),
        )
        self.offsets: Rows = [offset(number, 100 + number, log_start_offset=10) for number in range(4)]
        self.earlier: Rows | None = [{**row, "high_watermark": 90} for row in self.offsets]
        self.commits: Rows = [commit(number, 95, group=group) for group in "gh" for number in range(4)]
        self.members: Rows = [
            member(f"{group}-{number}", group=group, held={"t": [2 * number, 2 * number + 1]})
            for group in "gh"
            for number in range(2)
        ]
        self.lag: Rows = [
            {
                "group_id": group,
                "topic_id": self.offsets[number]["topic_id"],
                "topic": "t",
                "partition": number,
                "owner_member_id": f"{group}-{number // 2}",
                "status": "OK",
                "lag_records": 5 + number,
                "log_start_offset": 10,
                "end_offset": 100 + number,
            }
            for group in "gh"
            for number in range(4)
        ]
        self.age_s = 5.0

    def measure(self, batches: Sequence[str] = ("ghse",)) -> dict[str, Any]:
        offsets = arrow(OFFSETS, self.offsets, OFFSET_COLUMNS)
        earlier = None if self.earlier is None else arrow(OFFSETS, self.earlier, EARLIER_COLUMNS)
        checked_at = self.marker["end_read_at"] + timedelta(seconds=self.age_s)
        of_groups = (
            measure_groups(
                arrow(MEMBERS, _of(self.members, batch), MEMBER_COLUMNS),
                arrow(COMMITS, _of(self.commits, batch), COMMIT_COLUMNS),
                arrow(LAG, _of(self.lag, batch), LAG_COLUMNS),
                count_partitions(offsets),
            )
            for batch in batches
        )
        return combine(self.marker, measure_snapshot(self.marker, offsets, earlier, checked_at), of_groups)

    def failed(self) -> dict[str, Any]:
        """Names of the checks that fail by plain comparisons, with what was measured."""
        measured, found = self.measure(), {}
        for check in CHECKS:
            value = measured[check.observed]
            passes = check.null_passes
            if value is not None:
                passes = check.comparison.holds(value, check.allowed(SETTINGS))
            if not passes:
                found[check.name] = value
        return found


def _of(rows: Rows, batch: str) -> Rows:
    return [row for row in rows if row["group_id"] in batch]


def _change(rows: str, number: int, **values: Any) -> Callable[[Story], None]:
    return lambda story: getattr(story, rows)[number].update(values)


def _end_one_partition_early(story: Story) -> None:
    story.offsets[1].update(high_watermark=9, last_stable_offset=9)
    story.earlier = None


def _own_twice(story: Story) -> None:
    story.members[1]["assignment"] = [{"topic": "t", "partitions": [1, 2, 3]}]


def _repeat_a_partition(story: Story) -> None:
    story.offsets.append(dict(story.offsets[0]))
    story.marker["num_partitions"] = 5


def _lose_lag(story: Story) -> None:
    story.lag.pop()


def _lose_lag_behind_a_duplicate(story: Story) -> None:
    story.lag[0] = dict(story.lag[1])


def _let_a_group_fail(story: Story) -> None:
    story.commits.append({"group_id": "h", "read_at": NOW, "error": "GroupAuthorizationFailedError"})
    story.members[2]["error"] = "GroupAuthorizationFailedError"


DEFECTS: list[tuple[str, Callable[[Story], None], dict[str, Any]]] = [
    ("partitions unread", lambda s: s.marker.update(completeness=0.9), {"snapshot_complete": 0.9}),
    ("a group unread", _let_a_group_fail, {"groups_complete": 0.5}),
    ("checked too late", lambda s: setattr(s, "age_s", 901.0), {"snapshot_fresh": 901.0}),
    (
        "a clock set back",
        lambda s: s.marker.update(log_start_read_at=NOW + timedelta(seconds=9)),
        {"reads_in_order": 1},
    ),
    ("a partition not written", lambda s: s.marker.update(num_partitions=5), {"offsets_recorded": 1}),
    ("more rows than partitions", lambda s: s.marker.update(num_partitions=3), {"offsets_recorded": -1}),
    ("a partition twice", _repeat_a_partition, {"offsets_unique": 1}),
    ("an offset without an error", _change("offsets", 3, log_start_offset=None), {"offsets_known": 1}),
    ("a log that ends before it starts", _end_one_partition_early, {"end_not_before_start": 1}),
    (
        "a stable offset before the start",
        _change("offsets", 2, last_stable_offset=9),
        {"end_not_before_start": 1},
    ),
    ("an end below the last one", _change("earlier", 2, high_watermark=103), {"offsets_not_backwards": 1}),
    ("a group not written", lambda s: s.marker.update(num_groups=3), {"groups_recorded": 1}),
    ("a new state", _change("members", 0, group_state="Pondering"), {"group_states_known": 1}),
    ("two owners", _own_twice, {"one_owner": 1}),
    ("no lag of a partition", _lose_lag, {"lag_recorded": 1}),
    ("a duplicate beside a gap", _lose_lag_behind_a_duplicate, {"lag_recorded": 1, "lag_unique": 1}),
    ("a new status", _change("lag", 0, status="FINE"), {"statuses_known": 1}),
    ("no status", _change("lag", 0, status=None), {"statuses_known": 1}),
    ("OK without a lag", _change("lag", 0, lag_records=None), {"status_fits_lag": 1}),
    ("UNKNOWN with a lag", _change("lag", 0, status="UNKNOWN"), {"status_fits_lag": 1}),
    ("a negative lag", _change("lag", 0, lag_records=-1), {"lag_within_log": 1}),
    ("more lag than log", _change("lag", 0, lag_records=91), {"lag_within_log": 1}),
    ("a stranger as owner", _change("lag", 0, owner_member_id="h-0"), {"owners_are_members": 1}),
]


def test_a_snapshot_without_a_defect_passes_each_check() -> None:
    assert Story().failed() == {}


@pytest.mark.parametrize(("change", "expected"), [case[1:] for case in DEFECTS], ids=[c[0] for c in DEFECTS])
def test_a_defect_fails_its_own_check_alone(
    change: Callable[[Story], None], expected: dict[str, Any]
) -> None:
    story = Story()
    change(story)
    assert story.failed() == pytest.approx(expected)


def test_each_check_has_a_defect_that_fails_it() -> None:
    assert {name for *_, expected in DEFECTS for name in expected} == {check.name for check in CHECKS}


def test_what_is_legitimate_fails_no_check() -> None:
    story = Story()
    # An unreadable partition with its reason, and its lag unknown.
    story.offsets[3].update(high_watermark=None, last_stable_offset=None, error="LeaderNotAvailableError")
    for row in story.lag:
        if row["partition"] == 3:
            row.update(status="UNKNOWN", lag_records=None, end_offset=None)
    # A topic that was created again begins at zero under another id.
    story.offsets[0].update(topic_id="BBBBBBBBBBBBBBBBBBBBBB", high_watermark=0, last_stable_offset=0)
    story.offsets[0].update(log_start_offset=0)
    # A classic group that rebalances reports neither subscriptions nor owners.
    for row in story.members[2:]:
        row.update(group_state="PreparingRebalance", subscription=None, assignment=None, assignor=None)
    # A group of a type that shares partitions between members, and one that is empty.
    shared = {"group_type": "share", "group_state": "Sharing"}
    story.members += [member(f"s-{number}", group="s", held={"t": [0]}) | shared for number in range(2)]
    story.members.append(member(None, group="e", topics=None, group_state="Empty"))
    story.marker["num_groups"] = 4
    # The share group subscribes, so it has lag.
    story.lag += [{**row, "group_id": "s", "owner_member_id": "s-0"} for row in story.lag[:4]]
    assert story.failed() == {}


def test_counts_of_batches_of_groups_are_those_of_all_groups() -> None:
    story = Story()
    for change in (_own_twice, _let_a_group_fail, _lose_lag_behind_a_duplicate):
        change(story)
    assert story.measure(("g", "h")) == story.measure()


def test_the_first_snapshot_has_nothing_to_compare_with() -> None:
    story = Story()
    story.earlier = None
    assert story.measure()["num_offsets_backwards"] is None
    assert story.failed() == {}


def test_an_empty_cluster_passes_each_check() -> None:
    story = Story()
    story.offsets, story.commits, story.members, story.lag, story.earlier = [], [], [], [], []
    story.marker.update(num_partitions=0, num_groups=0)
    assert story.failed() == {}
