"""What moved between Airflow 3.1 and newer versions, by one name."""

from collections.abc import Mapping
from datetime import timedelta
from inspect import signature
from typing import Any

from airflow.sdk import DAG, Param, TaskInstanceState

try:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
except ImportError:  # Airflow 3.1
    from airflow.exceptions import (  # type: ignore[no-redef,attr-defined]  # the same names, elsewhere
        AirflowException,
        AirflowFailException,
        AirflowSkipException,
    )

try:
    from airflow.sdk import CronDataIntervalTimetable, CronTriggerTimetable
except ImportError:  # Airflow 3.1
    from airflow.timetables.interval import CronDataIntervalTimetable  # type: ignore[assignment]  # as above
    from airflow.timetables.trigger import CronTriggerTimetable  # type: ignore[assignment]  # as above

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowSkipException",
    "CronDataIntervalTimetable",
    "CronTriggerTimetable",
]


def answer_within(limit: timedelta) -> dict[str, timedelta]:
    """Return the argument that limits the time for an answer; before provider 1.13 ``execution_timeout``."""
    from airflow.providers.standard.operators.hitl import HITLOperator

    has_its_own = "response_timeout" in signature(HITLOperator.__init__).parameters
    return {"response_timeout" if has_its_own else "execution_timeout": limit}


def fixed_value(value: str, *, note: str) -> Param:
    """Return a parameter that the form of a request sends as it is, and that other senders may change."""
    # Before Airflow 3.3, the triggerer takes a person's answer.
    if "awaiting_input" not in {state.value for state in TaskInstanceState}:
        return Param(value, type="string", description=note)
    return Param(value, type="string", const=value, description=note)


def run_types(*names: str) -> dict[str, Any]:
    """Return the argument of a DAG that allows runs of these types only; Airflow 3.2 has it."""
    return {"allowed_run_types": list(names)} if "allowed_run_types" in signature(DAG).parameters else {}


def send_gauge(name: str, value: float, tags: Mapping[str, str]) -> None:
    """Send a gauge to Airflow's metrics backend, if one is configured."""
    backend: Any
    try:
        from airflow.sdk.observability import stats as backend
    except ImportError:  # Airflow 3.1
        from airflow.stats import Stats as backend  # noqa: N813  # an object there, a module here
    backend.gauge(name, value, tags=dict(tags))
