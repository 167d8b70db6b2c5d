"""The client of Airflow's REST API: for answers to approval requests, `evenlag doctor` and the sandbox."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

TOKEN_VARIABLE: Final = "EVENLAG_AIRFLOW_TOKEN"  # noqa: S105  # the variable's name
_API: Final = "/api/v2/"
_MAX_DETAIL: Final = 200


class AirflowRestError(RuntimeError):
    """Raised when Airflow is unreachable (no status) or refuses a request, with the reason that it gives."""

    def __init__(self, message: str, detail: str, status: int | None = None) -> None:
        super().__init__(message)
        self.detail = detail
        self.status = status

    @property
    def is_not_found(self) -> bool:
        """Whether Airflow does not know the requested resource."""
        return self.status == HTTPStatus.NOT_FOUND


class AirflowRest:
    """A client of one Airflow's REST API. It follows no redirect, so its token goes to this address only."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __repr__(self) -> str:
        """Return the URL only."""
        return f"{type(self).__name__}({self.url!r})"

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Send a GET request with query parameters; see :meth:`request`."""
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, and return the JSON object of the response.

        path: Below ``/api/v2/``; one that begins with a slash: below the root.
        """
        try:
            content = json.loads(self.send(method, path, body) or b"{}")
        except ValueError as error:
            raise AirflowRestError(f"no Airflow answers at {self.url}: {error}", str(error)) from error
        return content if isinstance(content, dict) else {}

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Send a request, and return the content of the response; see :meth:`request`."""
        if not self.url.startswith(("http://", "https://")):
            raise AirflowRestError(f"{self.url} is no address: give http://HOST:PORT", "no address")
        address = self.url + (path if path.startswith("/") else _API + path)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(address, data, headers, method=method)  # noqa: S310  # http(s), see above
            with self._opener.open(request, timeout=self._timeout_s) as response:
                found: bytes = response.read()
                return found
        except urllib.error.HTTPError as error:
            detail = _detail(error)
            raise AirflowRestError(
                f"{method} {path} was answered with {error.code}: {detail}", detail, error.code
            ) from error
        except (OSError, ValueError) as error:
            raise AirflowRestError(f"no Airflow answers at {self.url}: {error}", str(error)) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Let a redirect be an error; urllib would send the token along."""


def _detail(error: urllib.error.HTTPError) -> str:
    """The reason that Airflow gives, on one line."""
    if address := error.headers.get("Location"):
        return f"redirects to {address}"[:_MAX_DETAIL]
    try:
        content = error.read().decode(errors="replace")
    except OSError:
        return "no reason"
    try:
        answer = json.loads(content)
        content = str(answer["detail"] if isinstance(answer, dict) and "detail" in answer else answer)
    except ValueError:
        pass
    return " ".join(content.split())[:_MAX_DETAIL] or "no reason"
