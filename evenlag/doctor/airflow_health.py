"""Whether the parts of Airflow that evenlag needs are healthy, as Airflow reports it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from evenlag.doctor.airflow_rest import ask
from evenlag.doctor.model import failed, ok
from evenlag.enums import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.doctor.airflow_rest import AirflowRest
    from evenlag.doctor.model import Finding
    from evenlag.policy.settings import Policy

_NEEDED_PARTS: Final = ("metadatabase", "scheduler", "dag_processor")
# Before this version, a task that waits for a person is deferred: the triggerer takes the answer.
_ANSWERS_WITHOUT_TRIGGERER: Final = (3, 3)


def check_health(rest: AirflowRest | None, policy: Policy | None) -> list[Finding]:
    """Check the health of Airflow's parts; of the triggerer, if requests for approval need it."""
    asks = policy is not None and any(rule.mode is Mode.APPROVE for rule in policy.groups)
    version = str(ask(rest, "version")["version"]) if asks else ""
    return judge_health(ask(rest, "monitor/health"), needs_triggerer=asks and needs_triggerer(version))


def needs_triggerer(version: str) -> bool:
    """Return whether the triggerer takes the answer to a request for approval.

    Examples
    --------
    >>> [needs_triggerer(version) for version in ("3.1.8", "3.2.0", "3.3.0", "4.0.0rc1", "unknown")]
    [True, True, False, False, False]
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and tuple(map(int, found.groups())) < _ANSWERS_WITHOUT_TRIGGERER


def judge_health(answer: Mapping[str, Any], *, needs_triggerer: bool = False) -> list[Finding]:
    """Check that database, scheduler and DAG processor are healthy; a missing part is a failure."""
    found: list[Finding] = []
    for part in (*_NEEDED_PARTS, *(["triggerer"] if needs_triggerer else [])):
        state = (answer.get(part) or {}).get("status")
        if state != "healthy":
            why = ": no answer to a request for approval arrives" if part == "triggerer" else ""
            told = f"{part} is {state or 'not there'}{why}"
            found.append(failed(told, f"start it, or look at its log: airflow {_command(part)}"))
    also = " and triggerer" if needs_triggerer else ""
    return found or [ok(f"database, scheduler and DAG processor{also} are healthy")]


def _command(part: str) -> str:
    return {"metadatabase": "db check", "dag_processor": "dag-processor"}.get(part, part)
