"""Responses of the report view; the caller passes in the authorization check."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from evenlag.errors import JobError
from evenlag.logging_setup import named_logger
from evenlag.overview.sources import find_sources
from evenlag.safe_text import page_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlag.overview.sources import ReportSource

_LOG = named_logger(__name__)

PREFIX: Final = "/evenlag"
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


UNREADABLE_POLICY: Final = "The policy cannot be read: the server's log says why."


def answer(
    may_read: Callable[[str], bool],
    cluster: str | None,
    group: str | None,
    hours: float,
    sources: Callable[[], dict[str, ReportSource]] = find_sources,
) -> tuple[int, str]:
    """Build the response to a request for a report.

    Returns HTTP status and the HTML page: 200, 403 without permission, 404 without data, 503 for another
    error.
    may_read: Whether the user may read the DAG of this id, and so the report of its cluster. The response
        is the same for a cluster that does not exist and for one that the user may not read.
    cluster: Name of the cluster, with the prefix of its DAG ids; default: the first one that the user may
        read.
    group: Group id; default: the group with the largest lag.
    """
    try:
        found = sources()
    except JobError:
        # Whose permission would apply is not known, and the message may quote the policy.
        _LOG.exception("the policy of the report cannot be read")
        return _error_page(HTTPStatus.SERVICE_UNAVAILABLE, UNREADABLE_POLICY)
    try:
        allowed = {name: source for name, source in found.items() if may_read(source.dag_id)}
        if not allowed or (cluster is not None and cluster not in allowed):
            what = "any cluster's DAG" if cluster is None else f"the DAG of the cluster {cluster}"
            return _error_page(HTTPStatus.FORBIDDEN, f"You may not read {what}, or there is none.")
        return HTTPStatus.OK, _page(allowed, cluster or next(iter(allowed)), group, hours)
    except JobError as error:
        is_nothing = error.exit_code == _NOTHING_THERE
        return _error_page(HTTPStatus.NOT_FOUND if is_nothing else HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _page(sources: Mapping[str, ReportSource], name: str, group: str | None, hours: float) -> str:
    from evenlag.lake.reader import LakeReader
    from evenlag.report.page import report_page
    from evenlag.report.read_report import read_report

    source = sources[name]

    def link_of(group_id: str) -> str:
        return f"?{urlencode({'cluster': name, 'group': group_id, 'hours': f'{hours:g}'})}"

    others = {"all groups": OVERVIEW_LINK} | {other: f"?{urlencode({'cluster': other})}" for other in sources}
    with _DRAWING:
        report = read_report(LakeReader(source.lake), source.cluster, group, hours=hours, max_rows=MAX_ROWS)
        return report_page(report, link_of=link_of, clusters=others, cluster=name)


def _error_page(status: HTTPStatus, message: str) -> tuple[int, str]:
    return status, message_page(message)


def message_page(message: str) -> str:
    """Build a page with a message instead of a report."""
    from evenlag.html.markup import page

    body = f'<main class="report"><h1>evenlag</h1><p class="note">{page_text(message)}</p></main>'
    return page("evenlag", body)
