"""Airflow plugin that serves the overview and the reports, registered by the entry point ``airflow.plugins``.

If evenlag is installed in Airflow's environment, its navigation contains the entry *evenlag*. Airflow
authorizes users: a user who may read the DAG of a cluster may read its groups and their reports.

All Airflow processes load their plugins, including workers, so this module imports little; the application
is imported on the first request.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

NAME: Final = "evenlag"
PREFIX: Final = "/evenlag"


class ReportApplication:
    """ASGI application that imports the FastAPI application on the first request."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Forward a request."""
        from evenlag.airflow.server import app

        await app(scope, receive, send)


def _href() -> str:
    """Return the URL path of the view, including the path of Airflow's base URL behind a proxy."""
    base = urlsplit(conf.get("api", "base_url", fallback="") or "").path
    return f"{base.rstrip('/')}{PREFIX}/overview"


class EvenlagPlugin(AirflowPlugin):
    """Serves the pages and adds the overview to Airflow's navigation."""

    name = NAME
    # Annotated as Airflow declares them.
    fastapi_apps: list[Any] = [{"app": ReportApplication(), "url_prefix": PREFIX, "name": NAME}]  # noqa: RUF012
    external_views: list[Any] = [  # noqa: RUF012
        {"name": NAME, "href": _href(), "destination": "nav", "url_route": "evenlag"}
    ]
