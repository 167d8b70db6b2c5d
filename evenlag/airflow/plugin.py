"""The report in Airflow's own page: a plugin that Airflow finds by evenlag's entry point ``airflow.plugins``.

Nothing has to be copied: where evenlag is installed for Airflow, the entry *evenlag* stands in its
navigation. Who may look is Airflow's to say: the report of a cluster is for those who may read its DAG.

Every process of Airflow's loads its plugins, workers too: so this one is light, and the application is
imported where it is asked for something.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from evenlag.airflow.report_view import PREFIX

NAME: Final = "evenlag"


class ReportApplication:
    """Stands for the application until its first request."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand a request on."""
        from evenlag.airflow.server import app

        await app(scope, receive, send)


def _href() -> str:
    """The view's address, below the path that Airflow's page has behind a proxy."""
    base = urlsplit(conf.get("api", "base_url", fallback="") or "").path
    return f"{base.rstrip('/')}{PREFIX}/report"


class EvenlagPlugin(AirflowPlugin):
    """Serves the report and puts it into the navigation."""

    name = NAME
    # Annotated as Airflow declares them.
    fastapi_apps: list[Any] = [{"app": ReportApplication(), "url_prefix": PREFIX, "name": NAME}]  # noqa: RUF012
    external_views: list[Any] = [  # noqa: RUF012
        {"name": NAME, "href": _href(), "destination": "nav", "url_route": "evenlag-report"}
    ]
