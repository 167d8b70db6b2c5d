"""The temporary member on a real broker, beside a member that rebalances only when the test lets it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient

from assignor_core.members import TEMPORARY_MEMBER_MARK
from evenlag.enums import GroupType
from evenlag.kafka.broker_requests import Answer, RequestLimits
from evenlag.kafka.groups import describe_named_groups
from evenlag.kafka.live_groups import read_live_groups
from evenlag.kafka.member_protocol import TEMPORARY_CLIENT_ID
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.rebalance_trigger import temporary_member
from evenlag.publishing.rebalance_trigger.temporary_member import NotAskedError, ask_group
from tests.support.raw_member import RawMember
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.brokers import Brokers

pytestmark = pytest.mark.broker
REBALANCE_IN_PROGRESS = 27
UNKNOWN_MEMBER_ID = 25
NOT_COORDINATOR = 16
INVALID_GROUP_ID = 24


class Scene:
    """A group with one member, the leader, and the publisher's client."""

    def __init__(self, broker: Brokers, group_id: str, member: RawMember) -> None:
        self.group_id, self.member = group_id, member
        self.servers = broker.bootstrap_servers
        self.settings = ClusterSettings(bootstrap_servers=tuple(broker.bootstrap_servers.split(",")))
        self.client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)

    def start(self) -> None:
        """Let the member join, alone, and own nothing."""
        assert self.member.join().leader == self.member.member_id
        self.member.sync()

    def ask(self, **more: Any) -> str:
        return ask_group(self.client, self.settings, self.group_id, **{"timeout_s": 300.0, **more})

    def rejoin(self) -> list[str]:
        """Let the member join again; return the member ids that the leader receives."""
        response = self.member.join()
        return [each.member_id for each in response.members]

    def describe(self) -> tuple[str, list[str]]:
        """Return state and member ids as Kafka's coordinator has them."""
        group = self.client.describe_groups([self.group_id])[self.group_id]
        return group["group_state"], sorted(each["member_id"] for each in group["members"])


@pytest.fixture
def scene(broker: Brokers, unique: Callable[[str], str]) -> Iterator[Scene]:
    group_id = unique("group")
    with RawMember(broker.bootstrap_servers, group_id) as member:
        made = Scene(broker, group_id, member)
        yield made
        made.client.close()


def test_one_rebalance_begins_and_no_leader_sees_the_temporary_member(scene: Scene) -> None:
    scene.start()
    before = scene.member.generation
    asked = scene.ask()
    assert scene.member.heartbeat() == REBALANCE_IN_PROGRESS
    assert scene.rejoin() == [scene.member.member_id]
    assert scene.member.generation == before + 1
    scene.member.sync()
    assert scene.member.heartbeat() == 0
    assert scene.describe() == ("Stable", [scene.member.member_id])
    assert scene.member.leave(asked) == UNKNOWN_MEMBER_ID


def test_a_rebalance_that_is_over_before_it_leaves_costs_one_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with members that join within milliseconds: their leader sees it, and its mark."""
    scene.start()
    before = scene.member.generation
    monkeypatch.setattr(temporary_member._Watched, "is_stable", lambda _: True)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(scene.ask)
        wait_until(lambda: scene.member.heartbeat() == REBALANCE_IN_PROGRESS)
        shown = scene.member.join().members
        assert asking.result() in {each.member_id for each in shown}
        assert len(shown) == 2
    assert scene.rejoin() == [scene.member.member_id]
    assert scene.member.generation == before + 2


def test_as_the_leader_it_assigns_nothing_and_leaves(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.start()
    monkeypatch.setattr(temporary_member._Watched, "is_stable", lambda _: True)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(scene.ask)
        wait_until(lambda: scene.member.heartbeat() == REBALANCE_IN_PROGRESS)
        assert scene.member.leave() == 0
        assert asking.result()
    wait_until(lambda: scene.describe() == ("Empty", []))


def test_a_time_out_leaves_by_member_id(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other member does not rejoin, so that the coordinator does not answer the join."""
    scene.start()
    monkeypatch.setattr(temporary_member._Watched, "is_stable", lambda _: True)
    with pytest.raises(NotAskedError, match="in time"):
        scene.ask(timeout_s=10.0)
    assert scene.rejoin() == [scene.member.member_id]


def test_only_a_stable_group_that_selects_evenlag_is_joined(broker: Brokers, scene: Scene) -> None:
    scene.member.join()
    with pytest.raises(NotAskedError, match="the group is CompletingRebalance"):
        scene.ask()
    scene.member.sync()
    assert scene.describe() == ("Stable", [scene.member.member_id])
    other = f"{scene.group_id}-range"
    with RawMember(broker.bootstrap_servers, other, protocols=("range", "evenlag")) as theirs:
        theirs.join()
        theirs.sync()
        with pytest.raises(NotAskedError, match="has selected the assignor 'range'"):
            ask_group(scene.client, scene.settings, other, timeout_s=300)
        assert theirs.heartbeat() == 0
    with pytest.raises(NotAskedError, match=r"the group (is Dead|cannot be described)"):
        ask_group(scene.client, scene.settings, f"{scene.group_id}-none", timeout_s=300)
    listed = {group["group_id"] for group in scene.client.list_groups()}
    assert f"{scene.group_id}-none" not in listed


def answer(code: int | None) -> Answer:
    """A coordinator's answer to a leave: a code of its one member, or none at all."""
    now = datetime.now(UTC)
    if code is None:
        return Answer(None, "timed out", now)
    return Answer(SimpleNamespace(error_code=0, members=[SimpleNamespace(error_code=code)]), None, now)


@pytest.mark.parametrize(
    ("codes", "num_calls", "logged"),
    [
        ([0], 1, None),
        ([UNKNOWN_MEMBER_ID], 1, None),
        ([NOT_COORDINATOR, 0], 2, None),
        ([None, 0], 2, None),
        ([None] * 3, 3, "timed out"),
        ([INVALID_GROUP_ID], 1, "InvalidGroupIdError"),
    ],
)
def test_it_leaves_again_only_where_the_coordinator_has_moved_or_not_answered(
    codes: list[int | None],
    num_calls: int,
    logged: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = [answer(code) for code in codes]
    monkeypatch.setattr(temporary_member, "find_coordinators", lambda *_: {"g": 1})
    calls: Any = SimpleNamespace(rounds=lambda: range(3), run=lambda _: [answers.pop(0)])
    temporary_member._leave(calls, "g", "m")
    assert len(codes) - len(answers) == num_calls
    assert [record.getMessage() for record in caplog.records] == (
        [f"member m could not leave group g, and expires: {logged}"] if logged else []
    )


def test_it_does_not_join_a_rebalance_that_has_begun_meanwhile(
    broker: Brokers, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that it does not use would hold the rebalance up, so it gives it back."""
    scene.start()
    get_id = temporary_member._TemporaryMember._get_member_id
    ids: list[str] = []
    with RawMember(broker.bootstrap_servers, scene.group_id) as other, ThreadPoolExecutor(1) as pool:

        def get_id_and_rebalance(self: Any) -> int:
            timeout_ms = get_id(self)
            ids.append(self.member_id)
            pool.submit(other.join)
            wait_until(lambda: scene.member.heartbeat() == REBALANCE_IN_PROGRESS)
            return timeout_ms

        monkeypatch.setattr(temporary_member._TemporaryMember, "_get_member_id", get_id_and_rebalance)
        with pytest.raises(NotAskedError, match="the group is PreparingRebalance"):
            scene.ask()
        assert scene.member.leave(ids[0]) == UNKNOWN_MEMBER_ID
        shown = scene.rejoin()
    assert sorted(shown) == sorted([scene.member.member_id, other.member_id])


def test_the_readers_of_groups_do_not_show_it(scene: Scene) -> None:
    """Neither in a stable group, by its mark, nor while the group rebalances, by its client id."""
    scene.start()
    types = {scene.group_id: GroupType.CLASSIC}
    before = read_live_groups(scene.client, types)[scene.group_id]

    def rows() -> list[str]:
        found = describe_named_groups(scene.client, types, RequestLimits())
        return [row["member_id"] for row in found]

    guest = RawMember(
        scene.servers, scene.group_id, user_data=TEMPORARY_MEMBER_MARK, client_id=TEMPORARY_CLIENT_ID
    )
    with guest, ThreadPoolExecutor(1) as pool:
        joining = pool.submit(guest.join)
        wait_until(lambda: scene.member.heartbeat() == REBALANCE_IN_PROGRESS)
        assert rows() == [scene.member.member_id]
        scene.member.join()
        joining.result()
        scene.member.sync()
        state, members = scene.describe()
        assert (state, len(members)) == ("Stable", 2)
        assert rows() == [scene.member.member_id]
        assert read_live_groups(scene.client, types)[scene.group_id] == before
