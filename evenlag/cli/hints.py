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
from evenlag.cli.options import SHOW, ClusterOption, ConfigOption, JsonOption, ShowByDefault
from evenlag.errors import NothingThereError
from evenlag.formatting import did_you_mean, duration, moment, number

if TYPE_CHECKING:
    from assignor_core.hint import Hint
    from evenlag.publishing.hint_topic import TopicState


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
    """Show the current hints on the hint topic, decoded and verified; needs Kafka, but no lake."""
    from evenlag.publishing.hint_topic import read_hint_topic

    target = find_target(bootstrap_servers, config, cluster).with_hint_topic(hint_topic)
    settings = target.settings
    state = read_hint_topic(settings)
    if not state.exists:
        raise NothingThereError(
            f"{target.name} has no topic {settings.hint_topic}: nothing has been published there yet"
        )
    if group is not None and group not in state.hints:
        names = {*state.hints, *state.unreadable}
        why = f": {state.unreadable[group]}" if group in state.unreadable else did_you_mean(group, names)
        raise NothingThereError(f"there is no hint for the group {group!r} that can be read{why}")
    if as_json:
        chosen = {group: state.hints[group]} if group else state.hints
        print_json(_as_json(target.name, settings.hint_topic, state, chosen))
        return
    if group is None:
        _show_all(settings.hint_topic, state)
    else:
        _show_one(group, state.hints[group])
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
    shown = table(f"Hints on {topic}", columns, right=("sequence", "members", "partitions", "max moves"))
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


def _show_one(group_id: str, hint: Hint) -> None:
    shown = table(
        f"{group_id}: plan {hint.plan_id}, sequence {hint.sequence}, expires {_expiry(hint)}",
        ("member", "topic id", "partitions"),
        caption=f"for {_follower(hint)}, snapshot {hint.payload.snapshot_id}, "
        f"fingerprint {hint.payload.fingerprint}",
    )
    for member, topics in sorted(hint.payload.assignment.items()):
        for topic_id, numbers in sorted(topics.items()):
            shown.add_row(member, topic_id, ", ".join(str(value) for value in numbers))
    console().print(shown)


def _as_json(cluster: str, topic: str, state: TopicState, hints_by_group: Any) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "hint_topic": topic,
        "stopped": state.stopped,
        "unreadable": dict(state.unreadable),
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
                "assignment": {
                    member: {topic_id: list(numbers) for topic_id, numbers in topics.items()}
                    for member, topics in hint.payload.assignment.items()
                },
            }
            for group_id, hint in sorted(hints_by_group.items())
        ],
    }


def _follower(hint: Hint) -> str:
    """Return who applies the hint: only hints for brokers, which assign KIP-848 groups, have member ids."""
    return "consumers" if hint.payload.member_ids is None else "brokers"


def _num_partitions(hint: Hint) -> int:
    return sum(len(numbers) for topics in hint.payload.assignment.values() for numbers in topics.values())


def _expiry(hint: Hint) -> str:
    left = hint.expires_at_ms - _now_ms()
    return f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago"


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


app.command("withdraw")(hint_controls.withdraw)
app.command("stop-all")(hint_controls.stop_all)
app.command("resume")(hint_controls.resume)
