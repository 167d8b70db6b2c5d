"""What Airflow's page answers for a report; who may ask is told by whoever calls this."""

from __future__ import annotations

import threading
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from evenlag.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PREFIX: Final = "/evenlag"
# The exit code of what has not been seen.
_NOTHING_THERE: Final = 4
MAX_HOURS: Final = 24.0 * 31
HEADERS: Final = {
    # What the page says itself, and that only Airflow's page may frame it.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Matplotlib keeps settings for the whole process, and a server answers in several threads.
_DRAWING: Final = threading.Lock()


def dag_of(cluster: str) -> str:
    """Name the DAG whose readers may read a cluster's report."""
    return f"lag_rebalance__{cluster}"


def answer(
    may_read: Callable[[str], bool], cluster: str | None, group: str | None, hours: float
) -> tuple[int, str]:
    """Answer for a report: the status and the page.

    Parameters
    ----------
    may_read
        Whether who asks may read a cluster's report. A cluster that is not there and one that may not be
        read are answered alike.
    cluster, group, hours
        What was asked for; the first cluster that may be read, its group that is furthest behind.
    """
    from evenlag.policy.loader import load_policy

    try:
        policy = load_policy().policy
        allowed = [name for name in sorted(policy.clusters) if may_read(name)]
        if not allowed or (cluster is not None and cluster not in allowed):
            what = "any cluster's DAG" if cluster is None else f"the DAG {dag_of(cluster)}"
            return _told(HTTPStatus.FORBIDDEN, f"You may not read {what}, or there is none.")
        return HTTPStatus.OK, _page(policy.lake, allowed, cluster or allowed[0], group, hours)
    except JobError as error:
        is_nothing = error.exit_code == _NOTHING_THERE
        return _told(HTTPStatus.NOT_FOUND if is_nothing else HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _page(lake: str, clusters: Sequence[str], cluster: str, group: str | None, hours: float) -> str:
    from evenlag.lake.reader import LakeReader
    from evenlag.report.page import report_page
    from evenlag.report.read_report import read_report

    def link_of(group_id: str, name: str = cluster) -> str:
        return f"?{urlencode({'cluster': name, 'group': group_id, 'hours': f'{hours:g}'})}"

    told = read_report(LakeReader(lake), cluster, group, hours=hours)
    others = {name: f"?{urlencode({'cluster': name})}" for name in clusters}
    with _DRAWING:
        return report_page(told, link_of=link_of, clusters=others)


def _told(status: HTTPStatus, message: str) -> tuple[int, str]:
    from evenlag.html.markup import page

    body = f'<main class="report"><h1>evenlag report</h1><p class="note">{escape(message)}</p></main>'
    return status, page("evenlag report", body)
