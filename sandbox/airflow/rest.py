"""Airflow's REST interface, as much as is needed to trigger a DAG and to follow its run."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FINISHED = frozenset({"success", "failed"})
_PAUSE_S = 1.0


class AirflowError(RuntimeError):
    """Airflow did not do what was asked; the message holds its answer or its log's tail."""


@dataclass(slots=True)
class DagRun:
    """A DAG run as last seen.

    Attributes
    ----------
    state
        ``queued``, ``running``, ``success`` or ``failed``.
    task_states
        State by task id; None for a task that has not begun.
    """

    dag_id: str
    run_id: str
    state: str = "queued"
    task_states: dict[str, str | None] = field(default_factory=dict)
    duration_s: float = 0.0


class AirflowRest:
    """A client of one Airflow's REST interface.

    Parameters
    ----------
    url
        Root of the page.
    username, password
        Of the simple auth manager; the token is fetched at the first use and again when it has run out.
    """

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url.rstrip("/")
        self._credentials = {"username": username, "password": password}
        self._token: str | None = None

    def is_healthy(self) -> bool:
        """Whether the database, the scheduler and the DAG processor all say so."""
        try:
            health = self.get("/api/v2/monitor/health")
        except (AirflowError, OSError):
            return False
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all((health.get(part) or {}).get("status") == "healthy" for part in parts)

    def wait_for_dag(self, dag_id: str, *, timeout_s: float = 120.0) -> None:
        """Wait until a DAG has been parsed.

        Raises
        ------
        AirflowError
            With the import error when its file has one; when it does not appear in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            errors = self.get("/api/v2/importErrors")["import_errors"]
            if errors:
                raise AirflowError(f"{errors[0]['filename']} does not import:\n{errors[0]['stack_trace']}")
            if any(dag["dag_id"] == dag_id for dag in self.get("/api/v2/dags", limit=100)["dags"]):
                return
            time.sleep(_PAUSE_S)
        raise AirflowError(f"the DAG {dag_id} did not appear within {timeout_s:.0f} s")

    def trigger(
        self, dag_id: str, *, run_id: str | None = None, conf: Mapping[str, Any] | None = None
    ) -> DagRun:
        """Start a run by hand, now; with parameters, and under a name of one's own, if given."""
        body = {"logical_date": None, "conf": dict(conf or {})} | ({"dag_run_id": run_id} if run_id else {})
        answer = self.post(f"/api/v2/dags/{quote(dag_id)}/dagRuns", body)
        return DagRun(dag_id, answer["dag_run_id"])

    def refresh(self, run: DagRun) -> DagRun:
        """Bring a run's state and its tasks' states up to date, and return it."""
        path = f"/api/v2/dags/{quote(run.dag_id)}/dagRuns/{quote(run.run_id, safe='')}"
        tasks = self.get(f"{path}/taskInstances")["task_instances"]
        run.task_states = {task["task_id"]: task["state"] for task in tasks}
        run.state = self.get(path)["state"]
        return run

    def wait(
        self, run: DagRun, *, timeout_s: float, on_change: Callable[[DagRun], None] | None = None
    ) -> DagRun:
        """Follow a run to its end.

        Parameters
        ----------
        on_change
            Called whenever the run or one of its tasks has a new state.

        Raises
        ------
        AirflowError
            When the run fails, with the tail of the first failed task's log; when it takes too long.
        """
        started = time.monotonic()
        seen: object = None
        while (elapsed := time.monotonic() - started) < timeout_s:
            self.refresh(run).duration_s = elapsed
            now = (run.state, tuple(run.task_states.items()))
            if now != seen and on_change is not None:
                on_change(run)
            seen = now
            if run.state in _FINISHED:
                break
            time.sleep(_PAUSE_S)
        if run.state == "success":
            return run
        failed = next((task for task, state in run.task_states.items() if state == "failed"), None)
        if failed is not None:
            raise AirflowError(
                f"task {failed} of {run.run_id} failed; its log ends:\n{self.log(run, failed)}"
            )
        raise AirflowError(f"{run.run_id} is {run.state} after {timeout_s:.0f} s: {run.task_states}")

    def xcom(self, run: DagRun, task_id: str, key: str = "return_value") -> Any:
        """What a task of a run returned."""
        path = f"/api/v2/dags/{quote(run.dag_id)}/dagRuns/{quote(run.run_id, safe='')}"
        return self.get(f"{path}/taskInstances/{quote(task_id)}/xcomEntries/{key}", deserialize="true")[
            "value"
        ]

    def log(self, run: DagRun, task_id: str, *, lines: int = 30) -> str:
        """The last lines of a task's newest attempt."""
        path = f"/api/v2/dags/{quote(run.dag_id)}/dagRuns/{quote(run.run_id, safe='')}"
        task = f"{path}/taskInstances/{quote(task_id)}"
        attempt = self.get(task)["try_number"]
        content = self.get(f"{task}/logs/{attempt}", full_content="true")["content"]
        return "\n".join(f"  {text}" for text in [_log_text(line) for line in content][-lines:])

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Read a path of the interface."""
        return self._call("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a body to a path of the interface."""
        return self._call("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change what is at a path of the interface."""
        return self._call("PATCH", path, body)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            if self._token is None and not path.endswith("/health"):
                self._token = str(self._send("POST", "/auth/token", self._credentials)["access_token"])
            return self._send(method, path, body)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.UNAUTHORIZED:
                self._token = None
            detail = error.read().decode(errors="replace")[:500]
            raise AirflowError(f"{method} {path} was answered with {error.code}: {detail}") from error

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310  # our own http address
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # the same
            answer: dict[str, Any] = json.load(response)
        return answer


def _log_text(line: Any) -> str:
    """One line of a log: plain text, or a record whose exceptions stand in a field of their own."""
    if not isinstance(line, dict):
        return str(line)
    causes = [f"{cause['exc_type']}: {cause['exc_value']}" for cause in line.get("error_detail") or ()]
    return "\n  ".join([str(line.get("event", line)), *causes])
