"""`evenlag hints`: the current hints on the hint topic, and their withdrawal."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from assignor_core.hint import GROUP_KEY_PREFIX
from evenlag.cli import hint_controls, option_types
from evenlag.cli.cluster_target import BootstrapOption, HintTopicOption, find_target
from evenlag.cli.console import console, print_error, print_json, table
from evenlag.cli.grammar import SHOW, ShowByDefault
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption
from evenlag.cli.tables.hint_names import client_ids, topic_names
from evenlag.errors import NothingThereError
from evenlag.formatting import did_you_mean, duration, moment, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assignor_core.hint import Hint
    from assignor_core.loads import Loads
    from evenlag.publishing.hint_topic import TopicState


_LOADS_COLUMNS = ("group", "measured", "valid", "partitions", "unknown", "largest share", "for", "signature")
# Partitions that a list of hints contains one by one, of one hint and of all; and ranges of one member in a
# table, and groups in one.
_MAX_EXPANDED, _MAX_EXPANDED_IN_ALL = 100_000, 20_000_000
_MAX_LISTED = 10_000
# The last moment that can be shown: whoever writes to the topic chooses what it contains.
_LAST_MS = 253_402_300_799_999

app = typer.Typer(
    cls=ShowByDefault,
    help="Show the current hints on the hint topic; withdraw one, or stop all. "
    "Without a subcommand: show [GROUP].",
)


@app.command(SHOW)
def hints(
    group: Annotated[
        str | None,
        typer.Argument(
            parser=option_types.name, metavar="GROUP", help="A group, to show its target assignment."
        ),
    ] = None,
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
        raise NothingThereError(
            f"{target.name} has no topic {settings.hint_topic}: nothing has been published there yet"
        )
    if group is not None and group not in state.hints and group not in state.loads:
        names = state.other_groups(GROUP_KEY_PREFIX)
        why = f": {state.unreadable[group]}" if group in state.unreadable else did_you_mean(group, names)
        raise NothingThereError(f"there is no hint for the group {group!r} that can be read{why}")
    hint = state.hints.get(group) if group is not None else None
    clients = client_ids(target, hint) if hint else None
    topics = topic_names(target, hint) if hint else None
    if as_json:
        print_json(_as_json(target.name, settings.hint_topic, state, group, clients, topics))
        return
    if group is None:
        _show_all(settings.hint_topic, state)
    elif hint is not None:
        _show_one(group, hint, clients or {}, topics or {})
    _show_loads(state)
    _tell_odd(state)
    if state.stopped:
        _tell_stop(state)


def _tell_stop(state: TopicState) -> None:
    stopped, everything = len(state.stopped_partitions), state.num_partitions
    if stopped == everything:
        print_error("control/stop is on the topic: no consumer applies any hint until: evenlag hints resume")
    else:
        print_error(
            f"control/stop is in {stopped} of {everything} partitions: groups of the others still apply "
            "hints. evenlag hints stop-all stops them all, resume none"
        )


def _tell_odd(state: TopicState) -> None:
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


def _show_all(topic: str, state: TopicState) -> None:
    columns = (
        "group",
        "plan",
        "sequence",
        "issued",
        "expires",
        "members",
        "partitions",
        "max moves",
        "signature",
    )
    shown = table(
        f"Hints on {topic}",
        columns,
        right=("sequence", "expires", "members", "partitions", "max moves"),
        optional=("issued", "max moves", "members", "partitions", "sequence", "signature"),
    )
    for group_id in sorted(state.hints)[:_MAX_LISTED]:
        hint = state.hints[group_id]
        shown.add_row(
            group_id,
            hint.plan_id[:12],
            number(hint.sequence),
            moment(_moment(hint.issued_at_ms)),
            _expiry(hint),
            number(len(hint.payload.assignment)),
            number(_num_partitions(hint)),
            number(hint.payload.max_moves),
            "checked" if hint.signed else "not checked",
        )
    for group_id, reason in sorted(state.unreadable.items())[:_MAX_LISTED]:
        shown.add_row(group_id, Text("cannot be read", style="red"), "", "", "", "", "", "", reason)
    shown.caption = _caption(state.hints, state.unreadable)
    console().print(shown)


def _show_one(group_id: str, hint: Hint, clients: dict[str, str], names: dict[str, str]) -> None:
    ids = {topic_id for topics in hint.payload.assignment.values() for topic_id in topics}
    shown = table(
        f"{group_id}: plan {hint.plan_id}, sequence {hint.sequence}, expires {_expiry(hint)}",
        ("member", *(["client"] if clients else []), *(["topic"] if names else []), "topic id", "partitions"),
        # A topic's name identifies it as well.
        optional=("client", *(["topic id"] if ids <= names.keys() else [])),
        caption=f"for {_follower(hint)}, snapshot {hint.payload.snapshot_id}, "
        f"fingerprint {hint.payload.fingerprint}",
    )
    for member, topics in sorted(hint.payload.assignment.items()):
        for topic_id, numbers in sorted(topics.items()):
            ranges = str(numbers).split(",")
            listed = ", ".join(ranges[:_MAX_LISTED])
            rest = f" and {number(len(ranges) - _MAX_LISTED)} more" if len(ranges) > _MAX_LISTED else ""
            named = [clients.get(member, "")] if clients else []
            topic = [names.get(topic_id, "")] if names else []
            shown.add_row(member, *named, *topic, topic_id, listed + rest)
    console().print(shown)


def _as_json(
    cluster: str,
    topic: str,
    state: TopicState,
    group: str | None,
    clients: dict[str, str] | None,
    topics: dict[str, str] | None,
) -> dict[str, Any]:
    expand = _Expander(is_alone=group is not None)
    return {
        "cluster": cluster,
        "hint_topic": topic,
        "stopped": state.stopped,
        "unreadable": dict(state.unreadable),
        "unreadable_loads": dict(state.unreadable_loads),
        "foreign_keys": state.foreign.num_keys,
        "foreign_bytes": state.foreign.num_bytes,
        "not_shown": state.num_unkept,
        "compressed_batches": state.num_compressed,
        "hints": (
            {
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
                "partitions": _num_partitions(hint),
                "assignment": expand(hint),
                "client_ids": clients,
                "topic_names": topics,
            }
            for group_id in sorted(state.hints)
            for hint in [state.hints[group_id]]
        ),
        "loads": _loads_as_json(state),
    }


class _Expander:
    """Lists partitions one by one. Few bytes can name millions, so a list has those of small hints only."""

    def __init__(self, *, is_alone: bool) -> None:
        self._is_alone = is_alone
        self._left = _MAX_EXPANDED_IN_ALL

    def __call__(self, hint: Hint) -> dict[str, dict[str, list[int]]] | None:
        count = _num_partitions(hint)
        if not self._is_alone and count > min(_MAX_EXPANDED, self._left):
            return None
        self._left -= count
        return {
            member: {topic_id: list(numbers) for topic_id, numbers in topics.items()}
            for member, topics in hint.payload.assignment.items()
        }


def _show_loads(state: TopicState) -> None:
    """Print a table of the loads; nothing without any."""
    if not state.loads and not state.unreadable_loads:
        return
    shown = table(
        "Loads, for when members change",
        _LOADS_COLUMNS,
        right=_LOADS_COLUMNS[2:6],
        optional=("measured", "unknown", "partitions", "largest share"),
    )
    for group_id in sorted(state.loads)[:_MAX_LISTED]:
        loads = state.loads[group_id]
        known, unknown = _known(loads)
        shown.add_row(
            group_id,
            moment(_moment(loads.payload.measured_at_ms)),
            _validity(loads),
            number(len(known) + unknown),
            number(unknown),
            f"{max(known, default=0) / (sum(known) or 1):.1%}",
            _follower(loads),
            "checked" if loads.signed else "not checked",
        )
    for group_id, reason in sorted(state.unreadable_loads.items())[:_MAX_LISTED]:
        shown.add_row(group_id, Text("cannot be read", style="red"), "", "", "", "", "", reason)
    shown.caption = _caption(state.loads, state.unreadable_loads)
    console().print(shown)


def _loads_as_json(state: TopicState) -> Iterator[dict[str, Any]]:
    """Loads on the topic as JSON values."""
    return (
        {
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
        for group_id in sorted(state.loads)
        for loads in [state.loads[group_id]]
    )


def _caption(*records: Mapping[str, Any]) -> str:
    """Return how many groups a table leaves out, or that it has none."""
    count = sum(max(0, len(by_group) - _MAX_LISTED) for by_group in records)
    return f"and {number(count)} groups more" if count else "" if any(records) else "none"


def _known(loads: Loads) -> tuple[list[int], int]:
    values = [value for by_topic in loads.payload.loads.values() for value in by_topic]
    known = [value for value in values if value is not None]
    return known, len(values) - len(known)


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


app.command("withdraw")(hint_controls.withdraw)
app.command("stop-all")(hint_controls.stop_all)
app.command("resume")(hint_controls.resume)
app.command("purge")(hint_controls.purge)
