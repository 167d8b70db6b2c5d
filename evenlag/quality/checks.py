"""The checks of a snapshot's tables, as data, and their recorded verdicts.

``spark_jobs.steps.check_snapshot`` measures a snapshot as one row (:mod:`evenlag.quality.measures`) and
evaluates all checks of that row with Great Expectations. A check is one entry here and one measure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.tables import LAG, MEMBERS, OFFSETS, QUALITY_RESULTS, SNAPSHOTS
from evenlag.policy.gates import Comparison, is_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader


# Alerts report it by a kind of its own, with the number of partitions.
_COMPLETENESS: Final = "snapshot_complete"


class Suite(StrEnum):
    """A suite of checks: of what brokers answered (bronze), or of the lag computed from it (silver)."""

    BRONZE = "bronze"
    SILVER = "silver"


@dataclass(frozen=True, slots=True)
class QualitySetting:
    """A limit that is a setting of the cluster's ``quality``."""

    name: str


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a snapshot.

    name: Its name in ``quality_results``.
    observed: Name of the measure.
    message: Message of a failure, with the fields ``{observed}`` and ``{allowed}``.
    comparison: How the measure must compare to the limit. An unknown measure fails, unless `null_passes`.
    limit: The limit: a value, or a setting of the cluster.
    null_passes: Whether an unknown measure passes: the first snapshot has no earlier one to compare with.
    stops: Whether a failure may stop planning (``on_failure: stop``). Not if only the groups concerned are
        left out: what one group does stops no other.
    """

    name: str
    suite: Suite
    table: str
    fails_when: str
    observed: str
    message: str
    comparison: Comparison = Comparison.EQUAL
    limit: float | QualitySetting = 0
    null_passes: bool = False
    stops: bool = True

    @property
    def limit_column(self) -> str:
        """Name of the column with the limit, next to that of the measure."""
        return f"allowed_{self.name}"

    def allowed(self, settings: Mapping[str, Any]) -> Any:
        """Return the limit for a cluster.

        settings: The cluster's settings of ``quality`` as plain values.
        """
        return settings[self.limit.name] if isinstance(self.limit, QualitySetting) else self.limit

    def explain(self, observed: Any, allowed: Any) -> str:
        """Describe a failure.

        observed, allowed: The measure, None or NaN if it is unknown, and its limit.
        """
        if is_unknown(observed):
            return f"{self.observed} is not known, so {self.name} cannot be passed"
        return self.message.format(observed=observed, allowed=allowed)


CHECKS: Final = (
    Check(
        "snapshot_complete",
        Suite.BRONZE,
        SNAPSHOTS.name,
        fails_when="fewer partitions than `min_completeness` could be read",
        observed="completeness",
        comparison=Comparison.AT_LEAST,
        limit=QualitySetting("min_completeness"),
        message="{observed:.2%} of the partitions could be read, {allowed:.2%} are required",
    ),
    Check(
        "groups_complete",
        Suite.BRONZE,
        MEMBERS.name,
        fails_when="the members and commits of fewer groups than `min_completeness` could be read",
        observed="groups_completeness",
        comparison=Comparison.AT_LEAST,
        limit=QualitySetting("min_completeness"),
        message="{observed:.2%} of the groups could be read, with their commits; {allowed:.2%} are required",
    ),
    Check(
        "snapshot_fresh",
        Suite.BRONZE,
        SNAPSHOTS.name,
        fails_when="the end offsets were read more than `max_age_s` before the check",
        observed="age_s",
        comparison=Comparison.AT_MOST,
        limit=QualitySetting("max_age_s"),
        message="the end offsets were read {observed:.0f} s before the check, {allowed} s are allowed",
    ),
    Check(
        "reads_in_order",
        Suite.BRONZE,
        SNAPSHOTS.name,
        fails_when="log starts, commits and log ends were not read in this order",
        observed="num_times_out_of_order",
        message="{observed} of the snapshot's times are out of order: was a clock set back?",
    ),
    Check(
        "offsets_recorded",
        Suite.BRONZE,
        OFFSETS.name,
        fails_when="the number of rows is not the number of partitions in the marker",
        observed="num_partitions_missing",
        message="the marker counts {observed:+} partitions more than the table has rows",
    ),
    Check(
        "offsets_unique",
        Suite.BRONZE,
        OFFSETS.name,
        fails_when="a partition of a topic id has two rows",
        observed="num_offsets_duplicated",
        message="{observed} partitions have more than one row",
    ),
    Check(
        "offsets_known",
        Suite.BRONZE,
        OFFSETS.name,
        fails_when="an offset is missing without an error",
        observed="num_offsets_unexplained",
        message="{observed} partitions lack an offset, and no error says why",
    ),
    Check(
        "end_not_before_start",
        Suite.BRONZE,
        OFFSETS.name,
        fails_when="a high watermark or last stable offset is below the log start offset",
        observed="num_ends_before_start",
        message="{observed} partitions end before they start",
    ),
    Check(
        "offsets_not_backwards",
        Suite.BRONZE,
        OFFSETS.name,
        fails_when=(
            "the high watermark of a partition is lower than in the snapshot before, with the same topic id"
        ),
        observed="num_offsets_backwards",
        message=(
            "the high watermark of {observed} partitions is lower than in the snapshot before: records were "
            "lost (unclean leader election?), or another cluster was read"
        ),
        null_passes=True,
    ),
    Check(
        "groups_recorded",
        Suite.BRONZE,
        MEMBERS.name,
        fails_when="the number of groups is not the number of groups in the marker",
        observed="num_groups_missing",
        message="the marker counts {observed:+} groups more than the table has",
    ),
    Check(
        "group_states_known",
        Suite.BRONZE,
        MEMBERS.name,
        fails_when="a group has a state that evenlag does not know",
        observed="num_unknown_group_states",
        message="{observed} groups have a state that evenlag does not know: are the brokers newer?",
    ),
    Check(
        "one_owner",
        Suite.BRONZE,
        MEMBERS.name,
        fails_when="two members of a group own the same partition",
        observed="num_partitions_with_two_owners",
        message="{observed} partitions have two owners in one group: `evenlag audit anomalies` names them",
        stops=False,
    ),
    Check(
        "lag_recorded",
        Suite.SILVER,
        LAG.name,
        fails_when="a partition that a live member subscribes to has no row",
        observed="num_lag_missing",
        message="{observed} partitions of subscribed topics have no lag",
    ),
    Check(
        "lag_unique",
        Suite.SILVER,
        LAG.name,
        fails_when="a partition has two rows in one group",
        observed="num_lag_duplicated",
        message="{observed} partitions have more than one row in their group",
    ),
    Check(
        "statuses_known",
        Suite.SILVER,
        LAG.name,
        fails_when="a row has no status, or one that evenlag does not know",
        observed="num_unknown_statuses",
        message="{observed} rows have no status that evenlag knows",
    ),
    Check(
        "status_fits_lag",
        Suite.SILVER,
        LAG.name,
        fails_when="the lag is null where the status is OK, or known where it is UNKNOWN",
        observed="num_status_misfits",
        message="{observed} rows have a lag that does not fit their status",
    ),
    Check(
        "lag_within_log",
        Suite.SILVER,
        LAG.name,
        fails_when="the lag is negative, or larger than the log between its start and its end",
        observed="num_lag_outside_log",
        message="{observed} rows have a negative lag, or one larger than the log",
    ),
    Check(
        "owners_are_members",
        Suite.SILVER,
        LAG.name,
        fails_when="the owner of a partition is not a member of the group",
        observed="num_owners_unknown",
        message="{observed} partitions have an owner that is not a member of the group",
    ),
)
CHECK_BY_NAME: Final = {check.name: check for check in CHECKS}


def read_results(reader: LakeReader, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the verdicts of a snapshot.

    Returns rows of ``quality_results``; empty if the snapshot was not checked.
    """
    filters: list[Filter] = [(name, "=", snapshot[name]) for name in ("cluster", "day", "snapshot_id")]
    found: list[dict[str, Any]] = reader.read(QUALITY_RESULTS, filters=filters).to_pylist()
    return found


def stopping_failures(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the failures for which no group is planned where the policy says ``on_failure: stop``."""
    local = {name for name, check in CHECK_BY_NAME.items() if not check.stops}
    return [result for result in results if not result["passed"] and result["check_name"] not in local]


def failures_by_table(results: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return what is wrong with the tables of a snapshot.

    Returns messages by table, without that of an incomplete snapshot; None if the snapshot was not checked.
    """
    if not results:
        return None
    found: dict[str, list[str]] = {}
    for result in results:
        if not result["passed"] and result["check_name"] != _COMPLETENESS:
            message = f"{result['check_name']}: {result['message']}"
            found.setdefault(result["table_name"], []).append(message)
    return {name: "; ".join(sorted(messages)) for name, messages in sorted(found.items())}
