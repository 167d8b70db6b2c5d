"""The report in Airflow's own page: a plugin that Airflow finds by evenlag's entry point ``airflow.plugins``.

Nothing has to be copied: where evenlag is installed for Airflow, the entry *evenlag* stands in its
navigation. Who may look is Airflow's to say: the report of a cluster is for those who may read its DAG.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse

from evenlag.airflow_view import HEADERS, MAX_HOURS, PREFIX, answer, dag_of

NAME: Final = "evenlag"

app = FastAPI(title=NAME, docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/report", response_class=HTMLResponse)
def report(
    request: Request,
    user: Annotated[Any, Depends(get_user)],
    cluster: str | None = None,
    group: str | None = None,
    hours: Annotated[float, Query(gt=0, le=MAX_HOURS)] = 24.0,
) -> HTMLResponse:
    """Answer for a report; without a login Airflow's own check refuses."""

    def may_read(name: str) -> bool:
        try:
            requires_access_dag("GET", None, dag_of(name))(request, user)
        except HTTPException as refusal:
            if refusal.status_code != HTTPStatus.FORBIDDEN:
                raise
            return False
        return True

    status, page = answer(may_read, cluster, group, hours)
    return HTMLResponse(page, status, headers=HEADERS)


def _href() -> str:
    """The view's address, below the path that Airflow's page has behind a proxy."""
    base = urlsplit(conf.get("api", "base_url", fallback="") or "").path
    return f"{base.rstrip('/')}{PREFIX}/report"


class EvenlagPlugin(AirflowPlugin):
    """Serves the report and puts it into the navigation."""

    name = "evenlag"
    # Annotated as Airflow declares them.
    fastapi_apps: list[Any] = [{"app": app, "url_prefix": PREFIX, "name": NAME}]  # noqa: RUF012
    external_views: list[Any] = [  # noqa: RUF012
        {"name": NAME, "href": _href(), "destination": "nav", "url_route": "evenlag-report"}
    ]
