"""FastAPI application that serves the report in Airflow's API server, with Airflow's authorization."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse

from evenlag.airflow.report_view import HEADERS, MAX_HOURS, answer, dag_of

app = FastAPI(title="evenlag", docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/report", response_class=HTMLResponse)
def report(
    request: Request,
    user: Annotated[Any, Depends(get_user)],
    cluster: str | None = None,
    group: str | None = None,
    hours: Annotated[float, Query(gt=0, le=MAX_HOURS)] = 24.0,
) -> HTMLResponse:
    """Serve a report. Airflow rejects requests without a login.

    Parameters
    ----------
    request
        The HTTP request.
    user
        The user that Airflow authenticated.
    cluster, group, hours
        See :func:`evenlag.airflow.report_view.answer`.

    Returns
    -------
    HTMLResponse
        The page.

    Raises
    ------
    HTTPException
        When authorization fails for a reason other than a missing permission (status 403).
    """

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
