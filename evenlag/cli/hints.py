"""`evenlag hints`: the current hints on the hint topic, and their withdrawal."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from evenlag.cli import hint_controls, option_types
from evenlag.cli.cluster_target import BootstrapOption, HintTopicOption, find_target
from evenlag.cli.console import console, print_error, print_json, table
from evenlag.cli.grammar import SHOW, ShowByDefault
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption
from evenlag.cli.tables.hint_names import client_ids, topic_names
from evenlag.errors import NothingThereError
from evenlag.formatting import did_you_mean, duration, moment, number

if TYPE_CHECKING:
    from assignor_core.hint import Hint
    from assignor_core.loads import Loads
    from evenlag.publishing.hint_topic import TopicState


_LOADS_COLUMNS = ("group", "measured", "valid", "partitions", "unknown", "largest share", "for", "signature")
# Partitions of one hint that a list of hints contains one by one, and ranges of one member in a table.
_MAX_EXPANDED = 100_000
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
    state = read_hint_topic(settings)
    if not state.exists:
        raise NothingThereError(
            f"{target.name} has no topic {settings.hint_topic}: nothing has been published there yet"
        )
    if group is not None and group not in state.hints and group not in state.loads:
        names = {*state.hints, *state.unreadable, *state.loads}
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
    _show_loads(state, group)
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
    if state.strays:
        print_error(
            f"{len(state.strays)} groups have records in partitions that are not theirs; nobody reads them. "
            "evenlag hints withdraw GROUP removes them"
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
    for group_id, hint in sorted(state.hints.items()):
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
    for group_id, reason in sorted(state.unreadable.items()):
        shown.add_row(group_id, Text("cannot be read", style="red"), "", "", "", "", "", "", reason)
    if not state.hints and not state.unreadable:
        shown.caption = "none"
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
    chosen = {name: hint for name, hint in state.hints.items() if group in (None, name)}
    return {
        "cluster": cluster,
        "hint_topic": topic,
        "stopped": state.stopped,
        "unreadable": dict(state.unreadable),
        "unreadable_loads": dict(state.unreadable_loads),
        "other_partitions": {name: list(numbers) for name, numbers in state.strays.items()},
        "compressed_batches": state.num_compressed,
        "hints": [
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
                "assignment": _assignment(hint, is_alone=group is not None),
                "client_ids": clients,
                "topic_names": topics,
            }
            for group_id, hint in sorted(chosen.items())
        ],
        "loads": _loads_as_json(state, group),
    }


def _assignment(hint: Hint, *, is_alone: bool) -> dict[str, dict[str, list[int]]] | None:
    """The partitions one by one. Few bytes can name millions, so a list of hints has those of small ones."""
    if not is_alone and _num_partitions(hint) > _MAX_EXPANDED:
        return None
    return {
        member: {topic_id: list(numbers) for topic_id, numbers in topics.items()}
        for member, topics in hint.payload.assignment.items()
    }


def _show_loads(state: TopicState, group: str | None) -> None:
    """Print a table of the loads on the topic; nothing without any."""
    chosen = _of_group(state.loads, group)
    unreadable = _of_group(state.unreadable_loads, group)
    if not chosen and not unreadable:
        return
    shown = table(
        "Loads, for when members change",
        _LOADS_COLUMNS,
        right=_LOADS_COLUMNS[2:6],
        optional=("measured", "unknown", "partitions", "largest share"),
    )
    for group_id, loads in sorted(chosen.items()):
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
    for group_id, reason in sorted(unreadable.items()):
        shown.add_row(group_id, Text("cannot be read", style="red"), "", "", "", "", "", reason)
    console().print(shown)


def _loads_as_json(state: TopicState, group: str | None) -> list[dict[str, Any]]:
    """Loads on the topic as JSON values."""
    return [
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
        for group_id, loads in sorted(_of_group(state.loads, group).items())
    ]


def _of_group(records: Any, group: str | None) -> dict[str, Any]:
    return {name: record for name, record in records.items() if group in (None, name)}


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
