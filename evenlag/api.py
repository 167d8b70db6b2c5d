"""The Python API of evenlag: a lake's rows as Arrow tables, and assignments of plain problems."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from assignor_core.errors import ProblemError
from evenlag.context import find_cluster, find_lake
from evenlag.enums import DEFAULT_ASSIGNOR
from evenlag.errors import UsageError
from evenlag.lake.filters import of_group
from evenlag.lake.tables import LAG, OUTCOMES, SNAPSHOTS
from evenlag.queries.plan_rows import plan_rows, plans_as_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from evenlag.lake.filters import Filter
    from evenlag.lake.reader import LakeReader

Moment: TypeAlias = datetime | None


class Lake:
    """One cluster of a lake, read without Spark: `evenlag.open` returns it.

    Each method returns a `pyarrow.Table` with R rows and the columns and units of docs/tables.md; null is
    unknown. Only rows that count are returned: none of an attempt that was killed.

    Attributes
    ----------
    cluster : str
        The cluster's name.
    reader : LakeReader
        Reads other tables, and other clusters.

    Raises
    ------
    UsageError
        By each method, for a moment without a time zone.
    LakeError
        By each method, if a table cannot be read completely.
    """

    def __init__(self, reader: LakeReader, cluster: str) -> None:
        self.reader, self.cluster = reader, cluster

    def lag(self, *, group: str | None = None, since: Moment = None, until: Moment = None) -> pa.Table:
        """Return the lag of partitions in finished snapshots.

        Parameters
        ----------
        group
            A group id; None: all groups.
        since, until
            First and last slot. Without `since` the newest snapshot is read, of those up to `until`.

        Returns
        -------
        pyarrow.Table
            R = partitions of groups by the columns of ``lag``: records, milliseconds, records per second.
        """
        filters, head = self._filters(since, until), ("day", "snapshot_id")
        if since is None:
            found = self.reader.read_newest(SNAPSHOTS, "slot", columns=head, filters=filters)
        else:
            found = self.reader.read(SNAPSHOTS, columns=head, filters=filters)
        filters += [(name, "in", found[name].unique().to_pylist()) for name in head]
        return self.reader.read(LAG, filters=filters + of_group(group))

    def plans(self, *, group: str | None = None, since: Moment = None, until: Moment = None) -> pa.Table:
        """Return plans with their status and what they brought, newest first.

        Parameters
        ----------
        group, since, until
            As for :meth:`lag`; without `since` all plans.

        Returns
        -------
        pyarrow.Table
            R = plans by the columns of ``plans``, without the payload, settings and hashes, and by
            `evenlag.queries.plan_rows.ADDED_COLUMNS`.
        """
        first, last = _utc(since or datetime.min.replace(tzinfo=UTC)), _utc(until or datetime.now(UTC))
        days = first.date(), last.date()
        rows = plan_rows(self.reader, self.cluster, group=group, between=days)
        return plans_as_arrow([row for row in rows if first <= row["slot"] <= last])

    def outcomes(self, *, group: str | None = None, since: Moment = None, until: Moment = None) -> pa.Table:
        """Return the outcomes of published plans.

        Parameters
        ----------
        group, since, until
            As for :meth:`lag`, with the slots of the snapshots that settled them; without `since` all.

        Returns
        -------
        pyarrow.Table
            R = plans by the columns of ``outcomes``: records, milliseconds, adherence from 0 to 1.
        """
        return self.reader.read(OUTCOMES, filters=self._filters(since, until) + of_group(group))

    def ownership(self, *, group: str | None = None, since: Moment = None, until: Moment = None) -> pa.Table:
        """Return who owned which partition when, from the audit; intervals continue over midnight.

        Parameters
        ----------
        group
            As for :meth:`lag`.
        since, until
            The period that intervals may overlap; default: the last 24 hours that are audited.

        Returns
        -------
        pyarrow.Table
            R = intervals by the columns of ``ownership`` without the day, ordered by partition and time.

        Raises
        ------
        NotFoundError
            If the audit has not run, or does not show the group in this period.
        """
        import pyarrow.compute as pc

        from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
        from evenlag.audit.period import read_period

        edges = [None if each is None else _utc(each) for each in (since, until)]
        period = read_period(self.reader, self.cluster, *edges, group_id=group)
        rows = period.ownership.drop_columns([FIRST_INDEX, LAST_INDEX])
        starts = pc.coalesce(rows["previous_seen_at"], rows["first_seen_at"])
        ends = pc.coalesce(rows["next_seen_at"], rows["last_seen_at"])
        return rows.filter(pc.and_(pc.less_equal(starts, period.until), pc.greater_equal(ends, period.since)))

    def _filters(self, since: Moment, until: Moment) -> list[Filter]:
        found: list[Filter] = [("cluster", "=", self.cluster)]
        for operator, at in ((">=", since), ("<=", until)):
            if at is not None:
                found += [("day", operator, _utc(at).date()), ("slot", operator, _utc(at))]
        return found


def open_lake(lake: str, *, cluster: str | None = None) -> Lake:
    """Return a cluster of a lake to read; its public name is `evenlag.open`.

    Parameters
    ----------
    lake
        Root of the lake as in a policy: a folder, or a URI such as ``s3a://…``.
    cluster
        Its name in the policy; None: the lake's only one.

    Raises
    ------
    NotFoundError
        If the lake has no snapshot, or no such cluster.
    UsageError
        If the cluster is to be named, or the lake is a file.
    LakeError
        If the lake cannot be read.
    """
    reader = find_lake(lake, None)
    return Lake(reader, find_cluster(reader, cluster))


def assign(
    topics: Mapping[str, int],
    members: Mapping[str, Sequence[str]],
    *,
    owners: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    lags: Mapping[str, Sequence[int]] | None = None,
    assignor: str = DEFAULT_ASSIGNOR,
    **parameters: Any,
) -> dict[str, list[tuple[str, int]]]:
    """Return the assignment of a group's partitions by an assignor, without a cluster or a lake.

    Parameters
    ----------
    topics
        Number of partitions by topic.
    members, owners
        By member id: topics that it subscribes to, and (topic, partition) that it owns, as in the result.
    lags
        By topic: records of each partition. A topic without lags has none.
    assignor, parameters
        Its name, of docs/assignors.md or of an installed package, and values of its parameters.

    Returns
    -------
    dict
        (topic, partition) by member id, all members, sorted.

    Raises
    ------
    ProblemError
        If the problem is inconsistent, or a parameter is out of its range.
    UnknownAssignorError, ForeignAssignorError, InvalidAssignmentError
        If there is no such assignor, or one of another package fails or breaks a rule.
    TypeError
        If the assignor has no such parameter.

    Examples
    --------
    >>> assign({"orders": 3}, {"a": ["orders"], "b": ["orders"]}, lags={"orders": [90, 50, 50]})
    {'a': [('orders', 0)], 'b': [('orders', 1), ('orders', 2)]}
    """
    from assignor_core.assignors import get_assignor
    from assignor_core.problem import read_problem
    from assignor_core.verify import check_assignment

    owned = {member: [list(pair) for pair in pairs] for member, pairs in (owners or {}).items()}
    if unknown := sorted(owned.keys() - members.keys()):
        raise ProblemError(f"owners: {', '.join(unknown):.200} are not members")
    listed = [
        {"id": member, "topics": list(names), "owned": owned.get(member, [])}
        for member, names in members.items()
    ]
    given = {topic: list(values) for topic, values in (lags or {}).items()}
    group = read_problem({"topics": dict(topics), "members": listed, "lags": given}).group
    assignment = get_assignor(assignor, **parameters).assign(group)
    check_assignment(group, assignment)
    return group.to_mapping(assignment)


def _utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise UsageError(f"{at} has no time zone; give datetime(…, tzinfo=UTC)")
    return at.astimezone(UTC)
