"""Responses of the overview and of the reports; the caller passes in the authorization check.

Airflow's API server has no DAG bundle, so it may not have the policies. ``EVENLAG_REPORT_LAKES`` names the
lakes by the prefixes of the DAG ids; the clusters are those that a lake has snapshots of. Without the
variable, the policy that ``EVENLAG_CONFIG`` names is the only one, and its DAG ids have no prefix.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from starlette.responses import HTMLResponse

from evenlag.context import find_policy
from evenlag.errors import JobError, PolicyError
from evenlag.html.markup import page, text
from evenlag.lake.delta_log import one_look
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    ADVICE,
    APPROVAL_REQUESTS,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    OUTCOMES,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
    SPEEDS,
    Table,
)
from evenlag.logging_setup import named_logger
from evenlag.overview.metrics import ClusterCounts, PlanRows, read_plan_rows
from evenlag.overview.model import ClusterState, GroupRow, Overview
from evenlag.overview.page import Choice, content_policy, overview_page
from evenlag.overview.read_cluster import LagHistory, read_cluster
from evenlag.policy.settings import CYCLE_DAG

LAKES_VARIABLE: Final = "EVENLAG_REPORT_LAKES"
_LOG = named_logger(__name__)
# Relative to the report: both are below the same path.
OVERVIEW_LINK: Final = "overview"
# Exit code of errors that report missing data.
_NOTHING_THERE: Final = 4
MAX_HOURS: Final = 24.0 * 31
# Rows of lag that a page reads: about 100 MB of memory of the server, which draws one page at a time.
MAX_ROWS: Final = 1_000_000
HEADERS: Final = {
    # The policy of the page itself; in addition, only Airflow may embed it.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Matplotlib's settings are global to the process, and the server is multi-threaded. The rows of one page at a
# time are in its memory.
_DRAWING: Final = threading.Lock()
LOG_SAYS_WHY: Final = "the server's log says why"
UNREADABLE_POLICY: Final = "The policy cannot be read: the server's log says why."
# Several people look at the same overview: what one of them read a moment ago is not read again.
_FRESH_S: Final = 5.0
# A page waits so long for newer rows of the clusters that it has rows of.
PAGE_WAIT_S: Final = 0.4
_Read = tuple[ClusterState, "tuple[GroupRow, ...]"]
# What the rows are made of: as long as none of these changes, they stay as they are.
_TABLES: Final = (
    SNAPSHOTS, LAG, MEMBERS, DECISIONS, PLANS, PLAN_EVENTS, GATE_RESULTS, OUTCOMES, PLAN_EVALUATIONS,
    APPROVAL_REQUESTS, ADVICE, SPEEDS,
)  # fmt: skip
_COUNTED: Final = (PLAN_EVENTS, OUTCOMES)
# Of each table those of a cluster, or None: as long as they are the same, its rows are.
_Files = tuple[frozenset[str] | None, ...]
# Of a lake and a table those of each cluster, read once for all clusters.
_FilesOf = Callable[[str, Table], Mapping[str, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class ReportSource:
    """A cluster by its name in its policy, and where the report of it is read from.

    is_grouped: Whether one DAG runs the cycles of all clusters of the policy; None if that is not known.
    """

    dag_prefix: str
    cluster: str
    lake: str
    is_grouped: bool | None = None

    @property
    def name(self) -> str:
        """The cluster among those of all policies."""
        return f"{self.dag_prefix}{self.cluster}"

    def is_readable(self, may_read: Callable[[str], bool]) -> bool:
        """Whether a user may read the DAG of the cluster's cycles, and so the report."""
        grouped = f"{self.dag_prefix}{CYCLE_DAG}"
        own = f"{grouped}__{self.cluster}"
        of_cycles = {True: [grouped], False: [own], None: [own, grouped]}[self.is_grouped]
        return any(map(may_read, of_cycles))


class NoPolicyError(PolicyError):
    """Raised when neither a policy nor lakes are named; the message quotes nothing."""


def unreadable_policy(error: JobError) -> str:
    """Return what a page says if the clusters are not known: other messages may quote the policy."""
    _LOG.error("the policy of the pages cannot be read", exc_info=error)
    return str(error) if isinstance(error, NoPolicyError) else UNREADABLE_POLICY


def find_sources() -> dict[str, ReportSource]:
    """Return the clusters that have a report by name."""
    if text := os.environ.get(LAKES_VARIABLE, "").strip():
        found = list(_clusters_of(_parse(text)))
    else:
        from evenlag.policy.loader import POLICY_VARIABLE

        loaded = find_policy(None)
        if loaded is None:
            raise NoPolicyError(
                f"This server knows no policy: set {POLICY_VARIABLE}, or with DAG prefixes {LAKES_VARIABLE}, "
                "in its environment, and restart it."
            )
        policy = loaded.policy
        found = [ReportSource("", name, policy.lake, policy.group_clusters) for name in policy.clusters]
    return {source.name: source for source in sorted(found, key=lambda source: source.name)}


def _parse(text: str) -> dict[str, str]:
    try:
        lakes = json.loads(text)
    except ValueError:
        lakes = None
    if not isinstance(lakes, dict) or not all(isinstance(lake, str) and lake for lake in lakes.values()):
        raise PolicyError(
            f"{LAKES_VARIABLE} is no JSON object of lakes by the prefixes of their DAG ids: set it as in "
            """{"": "s3a://bucket/lake", "team_b_": "/srv/lake"}"""
        )
    return lakes


def _clusters_of(lakes: Mapping[str, str]) -> Iterator[ReportSource]:
    errors = []
    for prefix, lake in lakes.items():
        try:
            clusters = LakeReader(lake).clusters(SNAPSHOTS)
        except JobError as error:
            # The reports of the other lakes are still of use.
            _LOG.warning("the lake %s cannot be read: %s", lake, error)
            errors.append(error)
            continue
        for cluster in clusters:
            yield ReportSource(prefix, cluster, lake)
    if errors and len(errors) == len(lakes):
        raise errors[0]


def answer(
    may_read: Callable[[str], bool],
    cluster: str | None,
    group: str | None,
    hours: float,
    sources: Callable[[], dict[str, ReportSource]] = find_sources,
) -> HTMLResponse:
    """Build the response to a request for a report: 200, 403 without permission, 404 without data, else 503.

    may_read: Whether the user may read the DAG of this id, and so the report of its cluster. The response
        is the same for a cluster that does not exist and for one that the user may not read.
    cluster: Name with the prefix of its DAG ids; default: the first one that the user may read.
    group: Group id; default: the group with the largest lag.
    """
    try:
        found = sources()
    except JobError as error:
        # Whose permission would apply is not known.
        return message_response(HTTPStatus.SERVICE_UNAVAILABLE, unreadable_policy(error))
    try:
        allowed = {name: source for name, source in found.items() if source.is_readable(may_read)}
        if not allowed or (cluster is not None and cluster not in allowed):
            what = "any cluster's DAG" if cluster is None else f"the DAG of the cluster {cluster}"
            return message_response(HTTPStatus.FORBIDDEN, f"You may not read {what}, or there is none.")
        body = _page(allowed, cluster or next(iter(allowed)), group, hours)
        return HTMLResponse(body, headers=HEADERS)
    except JobError as error:
        is_nothing = error.exit_code == _NOTHING_THERE
        status = HTTPStatus.NOT_FOUND if is_nothing else HTTPStatus.SERVICE_UNAVAILABLE
        return message_response(status, str(error))


def _page(sources: Mapping[str, ReportSource], name: str, group: str | None, hours: float) -> str:
    from evenlag.report.page import report_page
    from evenlag.report.read_report import read_report

    source = sources[name]

    def link_of(group_id: str) -> str:
        return f"?{urlencode({'cluster': name, 'group': group_id, 'hours': f'{hours:g}'})}"

    others = {"all groups": OVERVIEW_LINK} | {other: f"?{urlencode({'cluster': other})}" for other in sources}
    with _DRAWING:
        report = read_report(LakeReader(source.lake), source.cluster, group, hours=hours, max_rows=MAX_ROWS)
        return report_page(report, link_of=link_of, clusters=others, cluster=name)


def message_response(status: int, message: str, **headers: str) -> HTMLResponse:
    """Build a page with a message instead of a report."""
    body = f'<main class="report"><h1>evenlag</h1><p class="note">{text(message)}</p></main>'
    return HTMLResponse(page("evenlag", body), status, headers={**HEADERS, **headers})


@dataclass(slots=True)
class _Known:
    """Rows of a cluster, the tables' files before they were read, and when that was."""

    read: _Read
    files: _Files | None
    read_s: float


class OverviewView:
    """Answers requests for the overview; one for a process: it remembers the lag of past snapshots.

    wait_s: So long a page waits for newer rows of a cluster that was read before; None: until they are read.
    """

    def __init__(
        self,
        sources: Callable[[], dict[str, ReportSource]] = find_sources,
        *,
        wait_s: float | None = None,
    ) -> None:
        self._sources = sources
        self._wait_s = wait_s
        self._history = LagHistory()
        self._read: dict[ReportSource, _Known] = {}
        # Clusters that a thread reads, or will read.
        self._asked: dict[ReportSource, Future[None]] = {}
        self._asking = threading.Lock()
        self._counted: dict[ReportSource, tuple[_Files, PlanRows]] = {}
        # The rows of one cluster at a time are in the server's memory.
        self._reading = threading.Lock()

    def answer(
        self, may_read: Callable[[str], bool], query: Mapping[str, str], known_tag: str | None = None
    ) -> HTMLResponse:
        """Build the response: 200, 304 if the browser has it, 403 without a permission, 503 without a policy.

        may_read: Whether the user may read the DAG of this id, and so the groups of its cluster. Other
            clusters are left out, as if they did not exist.
        known_tag: Tag of the response that the browser has: ``If-None-Match``.
        """
        try:
            sources = self._sources()
        except JobError as error:
            # Whose permission would apply is not known.
            return message_response(HTTPStatus.SERVICE_UNAVAILABLE, unreadable_policy(error))
        allowed = [source for source in sources.values() if source.is_readable(may_read)]
        if not allowed:
            what = "You may not read any cluster's DAG, or there is none."
            return message_response(HTTPStatus.FORBIDDEN, what)
        body = self.page(allowed, query)
        # The page does not depend on the time: it stays the same until what it shows changes.
        tag = f'W/"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'
        policy = f"{content_policy()}; frame-ancestors 'self'"
        headers = {**HEADERS, "Content-Security-Policy": policy, "ETag": tag}
        if known_tag == tag:
            return HTMLResponse("", HTTPStatus.NOT_MODIFIED, headers)
        return HTMLResponse(body, headers=headers)

    def page(self, sources: list[ReportSource], query: Mapping[str, str]) -> str:
        """Build the page of clusters."""
        return overview_page(self.read(sources, self._wait_s), Choice.from_query(query))

    def read(self, sources: list[ReportSource], wait_s: float | None = None) -> Overview:
        """Read the overview of clusters. One whose lake cannot be read has the reason instead of rows.

        wait_s: After so long, a cluster that was read before has the rows from then; None: none has.
        """
        asked = self.ask(sources)
        wait(reading for source, reading in asked.items() if source not in self._read)
        wait(asked.values(), wait_s)
        parts = []
        for source in sources:
            is_read = source not in asked or asked[source].done()
            state, rows = self._read[source].read
            parts.append((state if is_read else replace(state, is_being_read=True), rows))
        groups = tuple(row for _, rows in parts for row in rows)
        return Overview(tuple(state for state, _ in parts), groups)

    def ask(self, sources: Iterable[ReportSource]) -> dict[ReportSource, Future[None]]:
        """Let a thread read the clusters that were not read a moment ago; returns those that are not done."""
        fresh_from = time.monotonic() - _FRESH_S
        with self._asking:
            old = {s for s in sources if (known := self._read.get(s)) is None or known.read_s <= fresh_from}
            new = {source: Future[None]() for source in sources if source in old - self._asked.keys()}
            if new:
                threading.Thread(target=self._read_all, args=(list(new),)).start()
            self._asked |= new
            return {source: self._asked[source] for source in sources if source in self._asked}

    def count(self, sources: list[ReportSource]) -> dict[str, ClusterCounts]:
        """Count the plan events of clusters. One whose lake cannot be read is left out, with a warning."""
        now = datetime.now(UTC)
        with one_look(_FRESH_S):
            files_of = cache(_files_by_cluster)
            found = {source.name: self._count(source, now, files_of) for source in sources}
        return {name: counts for name, counts in found.items() if counts is not None}

    def _read_all(self, sources: list[ReportSource]) -> None:
        # A table's new commits are looked for once, not for each cluster.
        files_of = cache(_files_by_cluster)
        with one_look(0.0):
            for source in sources:
                if not threading.main_thread().is_alive():
                    # The process ends when the read in hand has: at the exit, Arrow's threads must not run.
                    return
                with self._reading:
                    read, files = self._cluster(source, files_of)
                with self._asking:
                    self._read[source] = _Known(read, files, time.monotonic())
                    self._asked.pop(source).set_result(None)

    def _cluster(self, source: ReportSource, files_of: _FilesOf) -> tuple[_Read, _Files | None]:
        known, now = self._read.get(source), datetime.now(UTC)
        try:
            # Before the rows: what changes while they are read is read again.
            files = _files(source, _TABLES, files_of)
            if known is not None and known.files == files and not _is_over(known.read[0], now):
                return known.read, files
            reader = LakeReader(source.lake)
            return read_cluster(reader, source.cluster, now, name=source.name, history=self._history), files
        except JobError as error:
            _LOG.warning("the overview of %s cannot be read: %s", source.name, error)
            return (ClusterState(source.name, problem=str(error)), ()), None
        except BaseException:  # noqa: BLE001 - a fault stays with its cluster, also a panic of Rust
            _LOG.exception("the overview of %s cannot be read", source.name)
            return (ClusterState(source.name, problem=LOG_SAYS_WHY), ()), None

    def _count(self, source: ReportSource, now: datetime, files_of: _FilesOf) -> ClusterCounts | None:
        with self._reading:
            known = self._counted.get(source)
            try:
                files = _files(source, _COUNTED, files_of)
                if known is None or known[0] != files:
                    known = files, read_plan_rows(LakeReader(source.lake), source.cluster, now)
                    self._counted[source] = known
            except JobError as error:
                _LOG.warning("the plan events of %s cannot be read: %s", source.name, error)
                return None
        return known[1].count(now)


def _files(source: ReportSource, tables: Iterable[Table], files_of: _FilesOf) -> _Files:
    return tuple(files_of(source.lake, table).get(source.cluster) for table in tables)


def _files_by_cluster(lake: str, table: Table) -> Mapping[str, frozenset[str]]:
    return LakeReader(lake).files_by_cluster(table)


def _is_over(state: ClusterState, now: datetime) -> bool:
    return state.valid_until is not None and state.valid_until <= now
