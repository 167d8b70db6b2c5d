"""What a plan would bring, and what a snapshot says of groups. Expected values are computed manually."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from evenlag.cli.lag import View, group_view, groups_view
from evenlag.kafka.arrow_rows import Problem
from evenlag.lag.formula import count_lag
from evenlag.lag.partitions import join_partitions
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS
from evenlag.live_lag.answer import describe_group, list_groups, preview_plans
from evenlag.live_lag.snapshot import LiveSnapshot
from evenlag.policy.group_settings import GroupSettings
from tests.support.lakes.snapshots import NOW, arrow, commit, member, offset

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenlag.live_lag.answer import PlanPreview

SETTINGS = GroupSettings(reset_policy="earliest")


def take(
    *members: dict[str, Any], committed: dict[str, dict[int, int]], ends: dict[int, int]
) -> LiveSnapshot:
    """A snapshot of topic ``t`` and groups with commits."""
    joined = join_partitions(
        arrow(OFFSETS, [offset(partition, end) for partition, end in ends.items()]),
        arrow(
            COMMITS,
            [commit(place, at, group=group) for group, by in committed.items() for place, at in by.items()],
        ),
        arrow(MEMBERS, members),
        lambda _group: SETTINGS,
    )
    lag = count_lag(joined.partitions, joined.groups, joined.member_ids, 900)
    return LiveSnapshot("k", NOW, lag, arrow(MEMBERS, members), ())


SKEWED = take(
    member("m-a", held={"t": [0, 1, 2]}, client_id="a"),
    member("m-b", held={"t": [3]}, client_id="b"),
    member("m-c", held={}, client_id="c"),
    member("idle-1", group="idle", held={"t": [0, 1, 2, 3]}),
    member(None, group="gone", topics=None, group_state="Empty", assignor=None),
    member(None, group="unread", topics=None, error="NotCoordinatorError"),
    committed={"g": {0: 40, 1: 70, 2: 90, 3: 100}, "idle": dict.fromkeys(range(4), 100), "gone": {0: 99}},
    ends=dict.fromkeys(range(4), 100),
)


def plan(settings: GroupSettings = SETTINGS) -> dict[str, PlanPreview]:
    return preview_plans(SKEWED, ["g", "idle", "gone", "unread"], lambda _group: settings)


def test_a_plan_moves_the_lag_of_the_most_loaded_member() -> None:
    found = plan()["g"]
    # 60, 30 and 10 are with m-a. Counts 3, 1 and 0 become 2, 1 and 1: one move takes 60 away at best.
    assert found.max_member_lag_before_records == 100
    assert found.max_member_lag_after_records == 60
    assert found.moves == len(found.owners or {}) == 1
    assert sorted((found.members or {}).values()) == [(1, 0), (1, 60), (2, 40)]


def test_the_settings_limit_the_plan() -> None:
    held = plan(GroupSettings(reset_policy="earliest", max_moves=0))["g"]
    assert (held.is_change, held.moves, held.max_member_lag_after_records) == (False, 0, 100)
    other = plan(GroupSettings(reset_policy="earliest", assignor="constrained-cooperative-sticky"))["g"]
    assert other.assignor == "constrained-cooperative-sticky"


def test_a_group_that_cannot_be_planned_says_why() -> None:
    found = plan()
    assert str(found["gone"].blocker).startswith("the group has no members")
    assert found["unread"].blocker == "the group could not be read: NotCoordinatorError"
    assert found["unread"].as_dict()["moves"] is None
    assert not found["idle"].is_change


def test_groups_without_partitions_are_listed_too() -> None:
    rows = {row["group_id"]: row for row in list_groups(SKEWED)}
    assert list(rows) == ["g", "gone", "idle", "unread"]
    assert (rows["g"]["lag_records"], rows["g"]["max_member_id"], rows["g"]["lag_skew"]) == (100, "m-a", 3.0)
    assert (rows["unread"]["num_partitions"], rows["unread"]["lag_records"]) == (0, None)
    # No member of a group without lag is the most loaded one.
    assert (rows["idle"]["lag_records"], rows["idle"]["max_member_id"]) == (0, None)


def test_a_group_is_described_with_what_the_plan_changes() -> None:
    preview = plan()["g"]
    group = describe_group(SKEWED, "g", preview)
    assert [(row["client_id"], row["lag_records"]) for row in group["members"]] == [
        ("a", 100),
        ("b", 0),
        ("c", 0),
    ]
    planned = {row["partition"]: row["planned_owner_member_id"] for row in group["partitions"]}
    assert planned == {0: "m-c", 1: None, 2: None, 3: None}


def rendered(width: int, *, name: str | None = None) -> str:
    out = Console(width=width, record=True, file=None, highlight=False)
    view = View("shop (kafka-1:9092)", 40)
    previews = plan()
    shown: RenderableType
    if name is None:
        shown = groups_view(view, SKEWED, list_groups(SKEWED), previews)
    else:
        shown = group_view(view, SKEWED, describe_group(SKEWED, name, previews[name]), previews[name])
    with out.capture() as captured:
        out.print(shown)
    return captured.get()


def test_tables_fit_a_narrow_terminal() -> None:
    for width in (80, 120):
        for name in (None, "g", "gone", "idle", "unread"):
            text = rendered(width, name=name)
            assert max(map(len, text.splitlines())) <= width
        assert "60 · 1 move" in rendered(width)
    text = " ".join(rendered(80, name="g").split())
    assert "would bring the lag of the most loaded member from 100 to 60 with 1 move" in text
    assert "would change nothing" in rendered(120, name="idle")
    assert "No plan: the group could not be read" in rendered(120, name="unread")


def test_a_group_that_is_not_measured_or_not_read_says_so_in_the_list() -> None:
    other = "not a consumer group: its protocol type is 'connect'"
    unknown: dict[str, Any] = {"assignment": None, "subscription_error": other, "assignment_error": other}
    bad = "the assignment cannot be decoded: the array of topics is null"
    snapshot = take(
        member("w-1", group="workers", topics=None, protocol_type="connect", **unknown),
        member("s-1", group="share", group_type="share", topics=("elsewhere",), protocol_type="share"),
        member("b-1", group="bad", assignment=None, assignment_error=bad),
        committed={"bad": {0: 90}},
        ends={0: 100},
    )
    rows = {row["group_id"]: row for row in list_groups(snapshot)}
    assert {name: (row["group_type"], row["note"]) for name, row in rows.items()} == {
        "workers": ("classic", "not a consumer group"),
        "share": ("share", "not measured"),
        "bad": ("classic", "members not read"),
    }
    out = Console(width=200, record=True, highlight=False)
    with out.capture() as captured:
        out.print(groups_view(View("shop", 9), snapshot, list_groups(snapshot), {}))
    lines = {
        line.split("│")[1].strip(): line.split("│")[2].strip()
        for line in captured.get().splitlines()
        if "│" in line
    }
    assert lines == {"workers": "not a consumer group", "share": "not measured", "bad": "10"}


def test_what_could_not_be_read_is_below_the_table() -> None:
    problems = [Problem("group", f"g-{number}", "NotCoordinator") for number in range(5)]
    snapshot = LiveSnapshot("k", NOW, SKEWED.lag, SKEWED.members, problems)
    out = Console(width=200, record=True, highlight=False)
    with out.capture() as captured:
        out.print(groups_view(View("shop", 2), snapshot, list_groups(snapshot), {}))
    message = " ".join(captured.get().split())
    assert "Not read: group g-0: NotCoordinator; group g-1: NotCoordinator; group g-2" in message
    assert "; and 2 more" in message
    assert "2 more groups: --limit 4" in message
