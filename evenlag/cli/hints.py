"""`evenlag hints`: the current hints on the hint topic; withdraw one, stop all, resume, purge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from assignor_core.hint import GROUP_KEY_PREFIX, Hint, member_key
from evenlag.cli.cluster_target import BootstrapOption, HintTopicOption, Target, find_target
from evenlag.cli.console import confirm, console, print_error, print_json
from evenlag.cli.grammar import SHOW, ShowByDefault
from evenlag.cli.layout import SHORT_ID, Column, Table, numbers
from evenlag.cli.option_types import argument, flag, option
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption, LakeOption, ReasonOption
from evenlag.context import acting_person
from evenlag.errors import JobError, NotFoundError
from evenlag.formatting import did_you_mean, duration, moment, number
from evenlag.queries.lag import read_group_members

if TYPE_CHECKING:
    from assignor_core.loads import Loads
    from evenlag.publishing.hint_topic import TopicState
    from evenlag.publishing.revocation import StopChange, Withdrawal


# Partitions that a list of hints contains one by one, of one hint and of all; and ranges of one member in a
# table, and groups in one.
_MAX_EXPANDED, _MAX_EXPANDED_IN_ALL = 100_000, 20_000_000
_MAX_LISTED = 10_000
# Seconds for the client ids of one hint: the lake may be a store that is not reachable.
_LAKE_WAIT_S: Final = 5.0
# The last moment that can be shown: whoever writes to the topic chooses what it contains.
_LAST_MS = 253_402_300_799_999


@dataclass(frozen=True, kw_only=True)
class _HintPlace:
    """The hint topic that a command changes, and the lake that records it."""

    bootstrap_servers: BootstrapOption = None
    hint_topic: HintTopicOption = None
    lake: LakeOption = None
    config: ConfigOption = None
    cluster: ClusterOption = None

    def target(self) -> Target:
        found = find_target(self.bootstrap_servers, self.config, self.cluster, lake=self.lake)
        return found.with_hint_topic(self.hint_topic)


@dataclass(frozen=True, kw_only=True)
class _Record:
    """Who changes hints, and why."""

    reason: ReasonOption
    actor: Annotated[
        str | None, option("--actor", "NAME", "The name to record; else the user of this machine.")
    ] = None

    def columns(self) -> dict[str, str]:
        return {"actor": acting_person(self.actor), "reason": self.reason}


app = typer.Typer(
    cls=ShowByDefault,
    help="Show the current hints on the hint topic; withdraw one, or stop all. "
    "Without a subcommand: show [GROUP].",
)


@app.command(SHOW)
def hints(
    group: Annotated[str | None, argument("GROUP", "A group, to show its target assignment.")] = None,
    *,
    bootstrap_servers: BootstrapOption = None,
    hint_topic: HintTopicOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the current hints on the hint topic, decoded and verified; needs Kafka, but no lake.

    One group's hint names its topics if the cluster has them, and the clients of its members if the lake has
    the snapshot that it was planned from.
    """
    from evenlag.publishing.hint_topic import read_hint_topic

    target = find_target(bootstrap_servers, config, cluster).with_hint_topic(hint_topic)
    settings = target.settings
    state = read_hint_topic(settings, None if group is None else {group})
    if not state.exists:
        raise NotFoundError(
            f"{target.name} has no topic {settings.hint_topic}: nothing has been published there yet"
        )
    if group is not None and group not in state.hints and group not in state.loads:
        names = state.other_groups(GROUP_KEY_PREFIX)
        why = f": {state.unreadable[group]}" if group in state.unreadable else did_you_mean(group, names)
        raise NotFoundError(f"there is no hint for the group {group!r} that can be read{why}")
    hint = state.hints.get(group) if group is not None else None
    clients = client_ids(target, hint) if hint else None
    topics = topic_names(target, hint) if hint else None
    if as_json:
        print_json(
            {
                "cluster": target.name,
                "hint_topic": settings.hint_topic,
                "stopped": state.stopped,
                "unreadable": state.unreadable,
                "unreadable_loads": state.unreadable_loads,
                "foreign_keys": state.foreign.num_keys,
                "foreign_bytes": state.foreign.num_bytes,
                "not_shown": state.num_unkept,
                "compressed_batches": state.num_compressed,
                "hints": _hints_as_json(state, clients, topics, is_alone=group is not None),
                "loads": _loads_as_json(state),
            }
        )
        return
    if group is None:
        title = f"Hints on {settings.hint_topic}"
        _show_records(title, _HINT_COLUMNS, state.hints, state.unreadable, _HINT_OPTIONAL)
    elif hint is not None:
        _show_one(group, hint, clients or {}, topics or {})
    if state.loads or state.unreadable_loads:
        title = "Loads, for when members change"
        _show_records(title, _LOADS_COLUMNS, state.loads, state.unreadable_loads, _LOADS_OPTIONAL)
    _print_problems(state)


def _print_problems(state: TopicState) -> None:
    if state.foreign.num_keys:
        print_error(
            f"{number(state.foreign.num_keys)} keys with {number(state.foreign.num_bytes)} bytes are on the "
            "topic that nobody reads. evenlag hints purge removes them"
        )
    if state.num_unkept:
        print_error(
            f"{number(state.num_unkept)} records are too much for a list: evenlag hints GROUP shows one"
        )
    if state.num_compressed:
        print_error(f"{state.num_compressed} compressed batches on the topic were skipped")
    stopped, everything = len(state.stopped_partitions), state.num_partitions
    if state.stopped and stopped == everything:
        print_error("control/stop is on the topic: no consumer applies any hint until: evenlag hints resume")
    elif state.stopped:
        print_error(
            f"control/stop is in {stopped} of {everything} partitions: groups of the others still apply "
            "hints. evenlag hints stop-all stops them all, resume none"
        )


# Rows are pairs of a group and its record.
_GROUP: Final = Column("group", lambda item: item[0])
_SIGNATURE: Final = Column("signature", lambda item: "checked" if item[1].signed else "not checked")
_HINT_COLUMNS: Final = (
    _GROUP,
    Column("plan", lambda item: item[1].plan_id[:SHORT_ID]),
    numbers("sequence", lambda item: number(item[1].sequence)),
    Column("issued", lambda item: moment(_moment(item[1].issued_at_ms))),
    numbers("expires", lambda item: _expiry(item[1])),
    numbers("members", lambda item: number(len(item[1].payload.assignment))),
    numbers("partitions", lambda item: number(_num_partitions(item[1]))),
    numbers("max moves", lambda item: number(item[1].payload.max_moves)),
    _SIGNATURE,
)
_HINT_OPTIONAL: Final = ("issued", "max moves", "members", "partitions", "sequence", "signature")


def _show_records(
    title: str,
    columns: Sequence[Column],
    records: Mapping[str, Any],
    unreadable: Mapping[str, str],
    optional: Sequence[str],
) -> None:
    """Print a table of the records of groups, and of those that cannot be read."""
    left_out = sum(max(0, len(by_group) - _MAX_LISTED) for by_group in (records, unreadable))
    caption = f"and {number(left_out)} groups more" if left_out else "" if records or unreadable else "none"
    rows = sorted(records.items())[:_MAX_LISTED]
    shown = Table(title, columns, rows, optional=optional, caption=caption)
    for group_id, reason in sorted(unreadable.items())[:_MAX_LISTED]:
        blank = [""] * (len(columns) - 3)
        shown.add_row(group_id, Text("cannot be read", style="red"), *blank, reason)
    console().print(shown)


def _show_one(group_id: str, hint: Hint, clients: dict[str, str], names: dict[str, str]) -> None:
    ids = {topic_id for topics in hint.payload.assignment.values() for topic_id in topics}
    headings = ("member", *(["client"] if clients else []), *(["topic"] if names else []), "topic id")
    shown = Table(
        f"{group_id}: plan {hint.plan_id}, sequence {hint.sequence}, expires {_expiry(hint)}",
        [Column(heading) for heading in (*headings, "partitions")],
        # A topic's name identifies it as well.
        optional=("client", *(["topic id"] if ids <= names.keys() else [])),
        caption=f"for {_follower(hint)}, snapshot {hint.payload.snapshot_id}, "
        f"fingerprint {hint.payload.fingerprint}",
    )
    for member, topics in sorted(hint.payload.assignment.items()):
        for topic_id, partitions in sorted(topics.items()):
            ranges = str(partitions).split(",")
            listed = ", ".join(ranges[:_MAX_LISTED])
            rest = f" and {number(len(ranges) - _MAX_LISTED)} more" if len(ranges) > _MAX_LISTED else ""
            named = [clients.get(member, "")] if clients else []
            topic = [names.get(topic_id, "")] if names else []
            shown.add_row(member, *named, *topic, topic_id, listed + rest)
    console().print(shown)


def _hints_as_json(
    state: TopicState, clients: dict[str, str] | None, topics: dict[str, str] | None, *, is_alone: bool
) -> Iterator[dict[str, Any]]:
    # Few bytes can name millions of partitions: of several hints, the small ones list theirs one by one.
    left = _MAX_EXPANDED_IN_ALL
    for group_id, hint in sorted(state.hints.items()):
        num_partitions = _num_partitions(hint)
        is_listed = is_alone or num_partitions <= min(_MAX_EXPANDED, left)
        left -= num_partitions if is_listed else 0
        yield {
            "group_id": group_id,
            "plan_id": hint.plan_id,
            "snapshot_id": hint.payload.snapshot_id,
            "sequence": hint.sequence,
            "issued_at": _moment(hint.issued_at_ms),
            "expires_at": _moment(hint.expires_at_ms),
            "expired": hint.is_expired(_now_ms()),
            "signature_checked": hint.signed,
            "for": _follower(hint),
            "fingerprint": hint.payload.fingerprint,
            "count_slack": hint.payload.count_slack,
            "max_moves": hint.payload.max_moves,
            "partitions": num_partitions,
            "assignment": _listed(hint) if is_listed else None,
            "client_ids": clients,
            "topic_names": topics,
        }


def _listed(hint: Hint) -> dict[str, dict[str, list[int]]]:
    return {
        member: {topic_id: list(numbers) for topic_id, numbers in topics.items()}
        for member, topics in hint.payload.assignment.items()
    }


_LOADS_COLUMNS: Final = (
    _GROUP,
    Column("measured", lambda item: moment(_moment(item[1].payload.measured_at_ms))),
    numbers("valid", lambda item: _validity(item[1])),
    numbers("partitions", lambda item: number(len(_load_values(item[1])))),
    numbers("unknown", lambda item: number(_load_values(item[1]).count(None))),
    numbers("largest share", lambda item: _largest_share(item[1])),
    Column("for", lambda item: _follower(item[1])),
    _SIGNATURE,
)
_LOADS_OPTIONAL: Final = ("measured", "unknown", "partitions", "largest share")


def _loads_as_json(state: TopicState) -> Iterator[dict[str, Any]]:
    for group_id, loads in sorted(state.loads.items()):
        yield {
            "group_id": group_id,
            "snapshot_id": loads.payload.snapshot_id,
            "measured_at": _moment(loads.payload.measured_at_ms),
            "valid_until": _moment(loads.payload.valid_until_ms),
            "fresh": loads.is_fresh(_now_ms()),
            "signature_checked": loads.signed,
            "for": _follower(loads),
            "count_slack": loads.payload.count_slack,
            "max_moves": loads.payload.max_moves,
            "default_capacity": loads.payload.default_capacity,
            "capacities": dict(loads.payload.capacities),
            "loads": {topic: list(values) for topic, values in loads.payload.loads.items()},
        }


def _load_values(loads: Loads) -> list[int | None]:
    return [value for by_topic in loads.payload.loads.values() for value in by_topic]


def _largest_share(loads: Loads) -> str:
    known = [value for value in _load_values(loads) if value is not None]
    return f"{max(known, default=0) / (sum(known) or 1):.1%}"


def _validity(loads: Loads) -> str:
    now_ms = _now_ms()
    left = loads.payload.valid_until_ms - now_ms
    if left > 0 and not loads.is_fresh(now_ms):
        return "not yet"
    return f"for {duration(left)}" if left > 0 else f"ended {duration(-left)} ago"


def _follower(hint: Hint | Loads) -> str:
    """Return who applies the hint: only hints for brokers, which assign KIP-848 groups, have member ids."""
    return "consumers" if hint.payload.member_ids is None else "brokers"


def _num_partitions(hint: Hint) -> int:
    return sum(len(numbers) for topics in hint.payload.assignment.values() for numbers in topics.values())


def _expiry(hint: Hint) -> str:
    left = hint.expires_at_ms - _now_ms()
    return f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago"


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(min(milliseconds, _LAST_MS) / 1000, tz=UTC)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def topic_names(target: Target, hint: Hint) -> dict[str, str]:
    """Return the names of a hint's topics by id; empty if the cluster does not answer."""
    from evenlag.kafka.connection import admin_client
    from evenlag.kafka.topic_metadata import read_topic_names

    ids = sorted({topic_id for topics in hint.payload.assignment.values() for topic_id in topics})
    if not ids:
        return {}
    try:
        with admin_client(target.settings) as client:
            return read_topic_names(client, ids)
    except JobError:
        return {}


def client_ids(target: Target, hint: Hint) -> dict[str, str]:
    """Return client ids by member key; empty if the lake lacks the snapshot, or does not answer in time."""
    found: dict[str, str] = {}
    reading = Thread(target=lambda: found.update(_read_client_ids(target, hint)), daemon=True)
    reading.start()
    # The hint is on the topic, whatever the lake is like: a store that does not answer delays it no longer.
    reading.join(_LAKE_WAIT_S)
    return dict(found)


def _read_client_ids(target: Target, hint: Hint) -> dict[str, str]:
    from evenlag.lake.reader import LakeReader

    payload = hint.payload
    try:
        reader = LakeReader(target.loaded.policy.lake)
        rows = read_group_members(reader, target.name, payload.snapshot_id, payload.group_id)
    except (JobError, ValueError):
        return {}
    return {
        member_key(row["member_id"], row["group_instance_id"]): row["client_id"]
        for row in rows
        if row["member_id"] is not None and row["client_id"] is not None
    }


@app.command("withdraw")
def withdraw(
    group: Annotated[str, argument("GROUP", "The group whose hint is withdrawn.")],
    *,
    record: _Record,
    place: _HintPlace,
    as_json: JsonOption = False,
) -> None:
    """Withdraw the hint of a group. Its consumers drop it within seconds; this starts no rebalance.

    Approved plans of the group are no longer published. Later plans may be: to prevent this, put the group
    into mode shadow, or stop all hints.
    """
    from evenlag.publishing.revocation import withdraw_hint

    target, by = place.target(), record.columns()
    done = withdraw_hint(target.loaded, target.name, group, **by)
    if as_json:
        answer = asdict(done)
        unpublished = answer.pop("unpublished")
        print_json({"cluster": target.name, **answer, "unpublished_plans": unpublished, **by})
        return
    out = console()
    out.print(f"{group}: {_withdrawal_text(done)}.", soft_wrap=True)
    if done.had_loads:
        out.print(f"{group}: its loads are removed, too.")
    _print_unread(done.unread)
    for plan_id in done.unpublished:
        out.print(f"{group}: plan {plan_id[:SHORT_ID]} was approved and will not be published.")


def _withdrawal_text(done: Withdrawal) -> str:
    if done.plan_id is not None:
        return f"the hint of plan {done.plan_id[:SHORT_ID]}, sequence {done.sequence}, is withdrawn"
    if done.was_present:
        return "the topic had no valid hint; its records are removed"
    if done.unread is not None:
        return "whatever hint there was is withdrawn"
    if done.unpublished:
        return "there is no current hint"
    return "there is no current hint; the last one was already withdrawn"


@app.command("stop-all")
def stop_all(*, record: _Record, place: _HintPlace, as_json: JsonOption = False) -> None:
    """Stop all hints of a cluster: no consumer applies one, and none is published, until `resume`."""
    from evenlag.publishing.revocation import stop_all

    _change_stop(stop_all, place, record, as_json=as_json, stopped=True)


@app.command("resume")
def resume(*, record: _Record, place: _HintPlace, as_json: JsonOption = False) -> None:
    """Resume the hints of a cluster after `stop-all`: they are published and applied again."""
    from evenlag.publishing.revocation import resume

    _change_stop(resume, place, record, as_json=as_json, stopped=False)


@app.command("purge")
def purge(
    *,
    record: _Record,
    yes: Annotated[bool, flag("--yes", "Do not ask.")] = False,
    place: _HintPlace,
    as_json: JsonOption = False,
) -> None:
    """Remove the records that nobody reads: with keys that are not evenlag's, or in another partition.

    Brokers free their disk space when they compact the topic.
    """
    from evenlag.publishing.hint_topic import read_hint_topic
    from evenlag.publishing.revocation import purge_foreign

    target, by = place.target(), record.columns()
    topic = target.settings.hint_topic
    found = read_hint_topic(target.settings, ()).foreign
    what = f"{number(found.num_keys)} keys with {number(found.num_bytes)} bytes"
    if found.num_keys:
        if not yes:
            confirm(f"Remove {what} from {topic}? It cannot be undone.")
        purge_foreign(target.loaded, target.name, **by)
    if as_json:
        head = {"cluster": target.name, "hint_topic": topic}
        print_json({**head, "keys": found.num_keys, "bytes": found.num_bytes, **by})
        return
    done = (
        f"{what} are removed from {topic}" if found.num_keys else f"{topic} has no records that nobody reads"
    )
    console().print(f"{done}.", soft_wrap=True)


# What is printed by whether hints are stopped now, and whether that is a change.
_STOP_SENTENCES: Final = {
    (True, True): "All hints are stopped",
    (True, False): "All hints were stopped already",
    (False, True): "Hints are followed and published again",
    (False, False): "Hints were not stopped",
}


def _change_stop(
    change: Callable[..., StopChange], place: _HintPlace, record: _Record, *, as_json: bool, stopped: bool
) -> None:
    target, by = place.target(), record.columns()
    done = change(target.loaded, target.name, **by)
    if as_json:
        answer = asdict(done)
        partitions = answer.pop("num_partitions")
        print_json({"cluster": target.name, **answer, "partitions": partitions, "stopped": stopped, **by})
        return
    console().print(
        f"{_STOP_SENTENCES[stopped, done.changed]} on {target.name}: "
        f"control/stop {'is in' if stopped else 'is removed from'} all "
        f"{done.num_partitions} partitions of {done.hint_topic}.",
        soft_wrap=True,
    )
    _print_unread(done.unread)
    if done.warning is not None:
        print_error(done.warning)


def _print_unread(unread: str | None) -> None:
    if unread is not None:
        print_error(f"the topic was written, and could not be read afterwards: {unread}")
