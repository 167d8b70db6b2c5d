"""Responses of the report view; the caller passes in the authorization check."""

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
# Exit code of errors that report missing data.
_NOTHING_THERE: Final = 4
MAX_HOURS: Final = 24.0 * 31
HEADERS: Final = {
    # The policy of the page itself; in addition, only Airflow may embed it.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Matplotlib's settings are global to the process, and the server is multi-threaded.
_DRAWING: Final = threading.Lock()


def dag_of(cluster: str) -> str:
    """Return the id of the DAG that authorizes access to a cluster's report.

    Parameters
    ----------
    cluster
        Name of the cluster in the policy.

    Returns
    -------
    str
        The DAG id.
    """
    return f"lag_rebalance__{cluster}"


def answer(
    may_read: Callable[[str], bool], cluster: str | None, group: str | None, hours: float
) -> tuple[int, str]:
    """Build the response to a request for a report.

    Parameters
    ----------
    may_read
        Whether the user may read the report of a cluster. The response is the same for a cluster that does
        not exist and for one that the user may not read.
    cluster
        Name of the cluster; default: the first one that the user may read.
    group
        Group id; default: the group with the largest lag.
    hours
        Length of the period in hours.

    Returns
    -------
    tuple of int and str
        HTTP status and the HTML page: 200, 403 without permission, 404 without data, 503 for another error.
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
