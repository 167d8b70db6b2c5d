"""A small client of Airflow's REST API, for the checks."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any, Final

TOKEN_VARIABLE: Final = "EVENLAG_AIRFLOW_TOKEN"  # noqa: S105  # the variable's name
_TIMEOUT_S: Final = 5.0


class NotThereError(Exception):
    """Raised when Airflow does not know the requested resource."""


class RestError(Exception):
    """Raised when a REST request fails; the message contains a remedy."""


class AirflowRest:
    """Read-only client of Airflow's REST API.

    url: Root URL of the API server.
    token: Token of a login; None for none.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def get(self, path: str) -> dict[str, Any]:
        """Request a resource and return its JSON."""
        if not self._url.startswith(("http://", "https://")):
            raise RestError(f"{self._url} is no address: give --airflow-url http://HOST:PORT")
        request = urllib.request.Request(f"{self._url}/api/v2/{path}")  # noqa: S310  # http(s), see above
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # as above
                content: dict[str, Any] = json.load(answer)
                return content
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                raise NotThereError(path) from error
            if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise RestError(
                    f"Airflow wants a login ({error.code}): put a token of POST /auth/token "
                    f"into {TOKEN_VARIABLE}"
                ) from error
            raise RestError(f"Airflow answers {error.code} to {path}") from error
        except (OSError, ValueError) as error:
            raise RestError(f"no Airflow answers at {self._url}: {error}") from error


def ask(rest: AirflowRest | None, path: str) -> dict[str, Any]:
    """Request a resource, as :meth:`AirflowRest.get` does."""
    if rest is None:
        raise NotThereError(path)
    return rest.get(path)
