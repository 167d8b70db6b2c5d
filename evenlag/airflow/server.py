"""FastAPI application that serves the overview and the reports in Airflow's API server, as it permits."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse

from evenlag.overview.views import MAX_HOURS, PAGE_WAIT_S, OverviewView, answer

app = FastAPI(title="evenlag", docs_url=None, redoc_url=None, openapi_url=None)
_VIEW = OverviewView(wait_s=PAGE_WAIT_S)


def _permission(request: Request, user: Any) -> Callable[[str], bool]:
    """Return whether a user may read a DAG, as Airflow's auth manager decides it."""

    def may_read(dag_id: str) -> bool:
        try:
            requires_access_dag("GET", None, dag_id)(request, user)
        except HTTPException as refusal:
            if refusal.status_code != HTTPStatus.FORBIDDEN:
                raise
            return False
        return True

    return may_read


@app.get("/overview", response_class=HTMLResponse)
def overview(request: Request, user: Annotated[Any, Depends(get_user)]) -> HTMLResponse:
    """Serve the overview of the clusters whose DAG the user may read. Airflow rejects others."""
    known_tag = request.headers.get("if-none-match")
    return _VIEW.answer(_permission(request, user), request.query_params, known_tag)


@app.get("/report", response_class=HTMLResponse)
def report(
    request: Request,
    user: Annotated[Any, Depends(get_user)],
    cluster: str | None = None,
    group: str | None = None,
    hours: Annotated[float, Query(gt=0, le=MAX_HOURS)] = 24.0,
) -> HTMLResponse:
    """Serve a report. Airflow rejects requests without a login."""
    return answer(_permission(request, user), cluster, group, hours)
