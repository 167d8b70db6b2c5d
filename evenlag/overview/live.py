"""What the brokers answer now, beside the overview of the lake: the pages of `evenlag serve --live`."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import urlencode

from evenlag.errors import KafkaAuthenticationError, KafkaAuthorizationError, KafkaUnreachableError
from evenlag.formatting import NOTHING, bounded, bounded_duration, count_of, number
from evenlag.html.markup import Html, page, table, text
from evenlag.kafka.connection import admin_client
from evenlag.live_lag.answer import list_groups
from evenlag.live_lag.snapshot import LiveReader, LiveSnapshot, ReadTarget
from evenlag.logging_setup import named_logger
from evenlag.overview.model import ClusterState, GroupRow, Overview
from evenlag.overview.page import Choice, asset, cluster_lines, overview_page
from evenlag.overview.read_cluster import lag_fields
from evenlag.overview.views import LOG_SAYS_WHY, OverviewView, ReportSource
from evenlag.queries.lag import PARTITION_COLUMNS, owner_text
from evenlag.redaction import redact

# The next snapshot of a cluster is taken so long after the last one, at the earliest.
READ_EVERY_S: Final = 5.0
# A page waits so long for a snapshot; without one, it is of the last cycle.
WAIT_S: Final = 10.0
MAX_ROWS: Final = 1_000
_LOG: Final = named_logger(__name__)
# Their messages quote no setting.
_QUOTED: Final = (KafkaUnreachableError, KafkaAuthenticationError, KafkaAuthorizationError)
_LAG: Final = "lag_records"
# Titles of what partitions are ordered by; those of numbers end with "#".
_COLUMNS: Final = {
    "topic": "Topic", "partition": "Partition#", _LAG: "Lag#", "time_lag_ms": "Behind by#",
    "status": "Status", "committed_offset": "Committed#", "end_offset": "End#",
    "owner_member_id": "Member", "client_id": "Client", "client_host": "Host",
}  # fmt: skip


class LiveClusters:
    """Takes snapshots of clusters when pages are asked for; one answers all requests of five seconds.

    target_of: Returns how the cluster of a name is read.
    """

    def __init__(self, target_of: Callable[[str], ReadTarget]) -> None:
        self._target_of = target_of
        self._lock = Lock()
        self._taken: dict[str, Future[LiveSnapshot | str]] = {}

    def read(self, names: Iterable[str]) -> dict[str, LiveSnapshot | str]:
        """Return the snapshot of each cluster, or why there is none."""
        taken = {name: self._take(name) for name in names}
        wait(taken.values(), WAIT_S)
        late = "the brokers have not answered yet"
        return {name: each.result() if each.done() else late for name, each in taken.items()}

    def _take(self, name: str) -> Future[LiveSnapshot | str]:
        with self._lock:
            taken = self._taken.get(name)
            if taken is None:
                taken = self._taken[name] = Future()
                # Brokers that hang delay neither other clusters nor the end of the server.
                Thread(target=self._keep, args=(name, taken), daemon=True).start()
            return taken

    def _keep(self, name: str, taken: Future[LiveSnapshot | str]) -> None:
        taken.set_result(self._read_now(name))
        time.sleep(READ_EVERY_S)
        del self._taken[name]

    def _read_now(self, name: str) -> LiveSnapshot | str:
        try:
            target = self._target_of(name)
            with admin_client(target.settings, target.client) as client:
                return LiveReader(client, target).read()
        except _QUOTED as error:
            _LOG.warning("the brokers of %s cannot be read: %s", name, error)
            return redact(error.message)
        except Exception:  # noqa: BLE001 - a fault stays with its cluster
            _LOG.exception("the brokers of %s cannot be read", name)
            return LOG_SAYS_WHY


class LiveView(OverviewView):
    """The overview with what the brokers answer; with ``cluster`` and ``group``, the page of a group."""

    def __init__(self, sources: Callable[[], dict[str, ReportSource]], clusters: LiveClusters) -> None:
        super().__init__(sources)
        self._clusters = clusters

    def page(self, sources: list[ReportSource], query: Mapping[str, str]) -> str:
        """Build the page of clusters or of a group; a group that does not exist is ignored."""
        wanted = query.get("cluster"), query.get("group")
        if wanted[1] is not None:
            sources = [source for source in sources if source.name == wanted[0]] or sources
        reads = self._clusters.read(source.name for source in sources)
        overview = with_live(self.read(sources), reads)
        for row in overview.groups:
            if (row.cluster, row.group_id) == wanted:
                return _group_page(overview.clusters[0], row, reads[row.cluster], query.get("sort", _LAG))
        return overview_page(overview, Choice.from_query(query))


def with_live(overview: Overview, reads: Mapping[str, LiveSnapshot | str]) -> Overview:
    """Return an overview with live lag, members and state, also of groups that the last cycle lacks."""
    rows = {(row.cluster, row.group_id): row for row in overview.groups}
    for name, snapshot in reads.items():
        for found in () if isinstance(snapshot, str) else list_groups(snapshot):
            key, state = (name, found["group_id"]), found["group_state"]
            row, before = rows.get(key, GroupRow(*key)), "not in the last cycle"
            if key in rows:
                before = f"last cycle: {bounded(row.lag_records, row.lag_bound)} behind"
            note = f"live: {state or NOTHING}; {before}"
            rows[key] = replace(row, **lag_fields(found), state=state, live_note=note)
    clusters = tuple(replace(each, live=_state(reads[each.name])) for each in overview.clusters)
    return Overview(clusters, tuple(rows.values()))


def _state(snapshot: LiveSnapshot | str) -> tuple[str, str]:
    """How live a cluster is, and the kind of its badge."""
    if isinstance(snapshot, str):
        return f"not live: {snapshot}", "warn"
    problems = f", {len(snapshot.problems):,} parts not read" if snapshot.problems else ""
    return f"live, read at {snapshot.ends_read_at:%H:%M:%S} UTC{problems}", "warn" if problems else "good"


def _group_page(cluster: ClusterState, row: GroupRow, snapshot: LiveSnapshot | str, sort: str) -> str:
    """Build the page of a group, with its partitions where the brokers answered."""
    title = f"{row.group_id} on {row.cluster}"
    query = urlencode({"cluster": row.cluster, "group": row.group_id})
    behind = bounded_duration(row.time_lag_ms, row.time_lag_at_least_ms)
    facts = (
        f"{bounded(row.lag_records, row.lag_bound)} records behind, the oldest for {behind}; "
        f"{count_of(row.num_members, 'member')}; {row.live_note or 'of the last cycle'}"
    )
    body = (
        f'<meta http-equiv="refresh" content="10"><main class="partitions"><h1>{text(title)}</h1>'
        f'{text(cluster_lines([cluster]))}<p class="verdict">{text(facts)}</p>'
        f'<p><a href="overview">all groups</a> · <a href="report?{text(query)}">report of the cycles</a></p>'
    )
    if not isinstance(snapshot, str):
        body += _partitions(snapshot.of_group(row.group_id), query, sort)
    return page(f"evenlag: {title}", f"{body}</main>", style=asset("overview.css"))


def _partitions(group: LiveSnapshot, query: str, sort: str) -> Html:
    """Build the table of partitions: the largest number or first name at the top; ``-``: at the bottom."""
    key = sort.removeprefix("-") if sort.removeprefix("-") in _COLUMNS else _LAG
    order = "descending" if _COLUMNS[key].endswith("#") != sort.startswith("-") else "ascending"
    members = group.members.select(["member_id", "client_id", "client_host"])
    rows = group.lag.select(PARTITION_COLUMNS).join(members, "owner_member_id", "member_id")
    shown = rows.sort_by([(key, order), ("topic", "ascending"), ("partition", "ascending")])[:MAX_ROWS]
    heads = "".join(
        f'<th scope="col"{" class=n" * title.endswith("#")}{f" aria-sort={order}" * (name == key)}>'
        f'<a href="?{text(query)}&amp;sort={"-" * (name == sort)}{name}">'
        f"{text(title.removesuffix('#'))}</a></th>"
        for name, title in _COLUMNS.items()
    )
    caption = f"{len(shown):,} of {len(rows):,} partitions, live. A heading orders by its column."
    return table(list(_COLUMNS.values()), map(_cells, shown.to_pylist()), caption=caption, heads=heads)


def _cells(row: dict[str, Any]) -> list[str]:
    shown = row | {
        _LAG: bounded(row[_LAG], row["lag_bound"]),
        "time_lag_ms": bounded_duration(row["time_lag_ms"], row["time_lag_at_least_ms"]),
        "owner_member_id": row["owner_member_id"] or owner_text(row),
        "client_host": (row["client_host"] or "").removeprefix("/"),
    }
    return [number(each) if isinstance(each, int) else each or NOTHING for each in map(shown.get, _COLUMNS)]
