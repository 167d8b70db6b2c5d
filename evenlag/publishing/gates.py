"""The gates a plan passes before anybody may be hinted, each a named expectation with a message.

A gate compares a column of the aggregated frame with a limit of the group's own policy. The comparison is
Great Expectations'; this module says which, and puts verdicts into words. A gate that could not be
evaluated fails closed, as an error of the run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import EVENLAG_ASSIGNOR

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

_STABLE: Final = "Stable"
CLASSIC: Final = "classic"
# The protocol of KIP-848: the brokers assign, by a plug-in of evenlag's where the group asks for it.
CONSUMER: Final = "consumer"
HINTABLE_TYPES: Final = (CLASSIC, CONSUMER)
# Kafka's own default, for a hint topic that is not there yet.
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
# What a record holds beside the payload: the hint's envelope, the key, Kafka's heads of record and batch.
HINT_OVERHEAD_BYTES: Final = 2_048


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate.

    Attributes
    ----------
    name
        Its name in ``gate_results``.
    observed
        Column of the frame that is judged.
    comparison
        ``at_most``, ``at_least`` or ``equal``; null is a failure unless `null_passes`.
    limit
        Of a plan's settings and its row of the frame: the number, or text, that is allowed.
    message
        The failure in plain words; ``{observed}`` and ``{allowed}`` are filled in.
    null_passes
        Whether "not known" is a pass, e.g. a group that was never hinted has no cooldown.
    """

    name: str
    observed: str
    comparison: str
    limit: Callable[[dict[str, Any], dict[str, Any]], Any]
    message: str
    null_passes: bool = False

    @property
    def limit_column(self) -> str:
        """The frame's column that holds the limit."""
        return f"allowed_{self.name}"


def _zero(_settings: dict[str, Any], _row: dict[str, Any]) -> int:
    return 0


def _payload_limit(_settings: dict[str, Any], row: dict[str, Any]) -> int:
    told = row["hint_topic_max_bytes"]
    is_known = told is not None and told == told  # noqa: PLR0124 - pandas' NaN is not itself
    return (int(told) if is_known else DEFAULT_MAX_MESSAGE_BYTES) - HINT_OVERHEAD_BYTES


def _hintable(_settings: dict[str, Any], row: dict[str, Any]) -> str:
    """What the group speaks, where hints reach that; else all that it might speak."""
    spoken = row["group_type"]
    return str(spoken) if spoken in HINTABLE_TYPES else " or ".join(HINTABLE_TYPES)


GATES: Final = (
    Gate("no_duplicates", "num_duplicates", "equal", _zero, "{observed} partitions stand twice in the plan"),
    Gate(
        "complete", "num_missing", "equal", _zero, "{observed} partitions that a member takes are with nobody"
    ),
    Gate(
        "valid_owners",
        "num_invalid_owners",
        "equal",
        _zero,
        "{observed} partitions are with a member that is not there or does not take the topic",
    ),
    Gate(
        "no_violations",
        "num_violations",
        "equal",
        _zero,
        "the checker finds {observed} broken rules; see the plan's violations",
    ),
    Gate(
        "count_slack",
        "count_gap",
        "at_most",
        lambda settings, _row: 1 + settings["count_slack"],
        "a partition could go to a member that has {observed} fewer, at most {allowed} is allowed",
    ),
    Gate(
        "max_moves",
        "moves",
        "at_most",
        lambda settings, _row: settings["max_moves"],
        "moves {observed} partitions, at most {allowed} are allowed",
    ),
    Gate(
        "min_gain",
        "gain",
        "at_least",
        lambda settings, _row: settings["min_gain"],
        "lowers the largest lag of a member by {observed:.1%}, at least {allowed:.1%} is asked for",
    ),
    Gate(
        "lag_known",
        "num_unknown_partitions",
        "equal",
        _zero,
        "the lag of {observed} partitions is not known",
    ),
    Gate(
        "snapshot_fresh",
        "snapshot_age_s",
        "at_most",
        lambda settings, _row: settings["gates"]["max_snapshot_age_s"],
        "the snapshot is {observed:.0f} s old, at most {allowed} s are allowed",
    ),
    Gate(
        "group_stable",
        "group_state",
        "equal",
        lambda _settings, _row: _STABLE,
        "the group is {observed}, not {allowed}",
    ),
    Gate(
        "hint_protocol",
        "group_type",
        "equal",
        _hintable,
        "the group speaks the {observed} protocol, hints need {allowed}",
    ),
    Gate(
        "hint_assignor",
        "group_assignor",
        "equal",
        lambda _settings, _row: EVENLAG_ASSIGNOR,
        "the group's assignor is {observed}: only a group that has selected {allowed} follows as a whole",
    ),
    Gate(
        "cooldown",
        "since_last_hint_s",
        "at_least",
        lambda settings, _row: settings["gates"]["cooldown_s"],
        "the last hint is {observed:.0f} s old, the group rests for {allowed} s",
        null_passes=True,
    ),
    Gate(
        "payload_fits",
        "payload_bytes",
        "at_most",
        _payload_limit,
        "the hint has {observed} bytes, a record of the hint topic holds {allowed}",
    ),
)


def with_limits(frame: pd.DataFrame) -> pd.DataFrame:
    """Put each plan's limits beside its numbers; a loop over plans is bounded by the number of groups."""
    # Groups of one rule have one text of settings: each is read once.
    parsed = {text: json.loads(text) for text in frame["settings"].unique()}
    rows = [
        (parsed[text], {"hint_topic_max_bytes": max_bytes, "group_type": spoken})
        for text, max_bytes, spoken in zip(
            frame["settings"], frame["hint_topic_max_bytes"], frame["group_type"], strict=True
        )
    ]
    limits = {gate.limit_column: [gate.limit(*row) for row in rows] for gate in GATES}
    violations = [0 if row is None else len(row) for row in frame["violations"]]
    return frame.assign(num_violations=violations, **limits)


def explain(gate: Gate, observed: Any, allowed: Any) -> str:
    """A failure in plain words; a value that is not known says so instead of a number."""
    if observed is None or observed != observed:  # noqa: PLR0124 - NaN is the number that is not itself
        return f"{gate.observed} is not known, so {gate.name} cannot be passed"
    return gate.message.format(observed=observed, allowed=allowed)
