"""A client of Airflow's REST API that triggers DAGs and follows their runs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from evenlag.airflow_rest import AirflowRest, AirflowRestError
from evenlag.doctor.airflow_checks import health_findings
from evenlag.doctor.model import Verdict
from sandbox.processes import SandboxError

_FINISHED = frozenset({"success", "failed"})
_PAUSE_S = 1.0
_TIMEOUT_S = 1_200.0
_HEALTH = "monitor/health"


class AirflowError(SandboxError):
    """Raised when Airflow fails; the message contains its response or the tail of its log."""


@dataclass(slots=True)
class DagRun:
    """The last known state of a DAG run, and of its tasks; None for a task that has not started."""

    dag_id: str
    run_id: str
    state: str = "queued"
    task_states: dict[str, str | None] = field(default_factory=dict)
    duration_s: float = 0.0

    @property
    def path(self) -> str:
        """The run's path in the REST API."""
        return f"dags/{quote(self.dag_id)}/dagRuns/{quote(self.run_id, safe='')}"


class DagRunClient(AirflowRest):
    """Triggers DAGs and follows their runs; it requests a token at first, and when it has expired."""

    def __init__(self, url: str, username: str, password: str) -> None:
        # An API server whose machine is busy with its start answers late.
        super().__init__(url, timeout_s=120.0)
        self._credentials = {"username": username, "password": password}

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request with a token, and return the JSON object of the response."""
        try:
            if self.token is None and path != _HEALTH:
                self.token = self.log_in()
            return super().request(method, path, body)
        except AirflowRestError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                self.token = None
            raise AirflowError(str(error)) from error

    def log_in(self) -> str:
        """Request a new token."""
        return str(super().request("POST", "/auth/token", self._credentials)["access_token"])

    def is_healthy(self) -> bool:
        """Whether the database, the scheduler and the DAG processor are healthy."""
        try:
            health = self.get(_HEALTH)
        except AirflowError:
            return False
        return all(one.verdict is Verdict.OK for one in health_findings(health))

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait until a DAG has been parsed."""
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            errors = self.get("importErrors")["import_errors"]
            if errors:
                raise AirflowError(f"{errors[0]['filename']} does not import:\n{errors[0]['stack_trace']}")
            if any(dag["dag_id"] == dag_id for dag in self.get("dags", limit=100)["dags"]):
                return
            time.sleep(_PAUSE_S)
        raise AirflowError(f"the DAG {dag_id} did not appear within {_TIMEOUT_S:.0f} s")

    def trigger(self, dag_id: str, **fields: Any) -> DagRun:
        """Trigger a run now, with further fields of Airflow's request."""
        answer = self.request("POST", f"dags/{quote(dag_id)}/dagRuns", {"logical_date": None, **fields})
        return DagRun(dag_id, answer["dag_run_id"])

    def refresh(self, run: DagRun) -> DagRun:
        """Return a run with its current state and the current states of its tasks."""
        tasks = self.get(f"{run.path}/taskInstances")["task_instances"]
        run.task_states = {task["task_id"]: task["state"] for task in tasks}
        run.state = self.get(run.path)["state"]
        return run

    def wait(
        self,
        run: DagRun,
        *,
        timeout_s: float = _TIMEOUT_S,
        on_look: Callable[[DagRun], object] = lambda _run: None,
    ) -> DagRun:
        """Follow a run until it ends."""
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < timeout_s:
            self.refresh(run).duration_s = elapsed
            on_look(run)
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

    def log(self, run: DagRun, task_id: str, *, lines: int = 30) -> str:
        """Return the last lines of the log of a task's newest try."""
        task = f"{run.path}/taskInstances/{quote(task_id)}"
        attempt = self.get(task)["try_number"]
        content = self.get(f"{task}/logs/{attempt}", full_content="true")["content"]
        return "\n".join(f"  {text}" for text in [_log_text(line) for line in content][-lines:])


def _log_text(line: Any) -> str:
    """One line of a log: plain text, or a record with its exceptions in a separate field."""
    if not isinstance(line, dict):
        return str(line)
    causes = [f"{cause['exc_type']}: {cause['exc_value']}" for cause in line.get("error_detail") or ()]
    return "\n  ".join([str(line.get("event", line)), *causes])
