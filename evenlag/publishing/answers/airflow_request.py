"""Answers an approval request through Airflow's REST API, as the user whose token is given.

Airflow authenticates the user, checks the approvers and resumes the task, which records the decision and
publishes the plan. So this needs neither write access to the lake nor Kafka.
"""

import os
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

from evenlag.airflow_rest import TOKEN_VARIABLE, AirflowRest, AirflowRestError
from evenlag.errors import JobError, NotFoundError, UsageError
from evenlag.policy.secrets import read_token
from evenlag.publishing.answers.actors import REASON, SENT_BY, Actor, NotAnApproverError, sent_by_command
from evenlag.publishing.approvals import NotWaitingError

URL_VARIABLE: Final = "EVENLAG_AIRFLOW_URL"
TOKEN_FILE_VARIABLE: Final = "EVENLAG_AIRFLOW_TOKEN_FILE"  # noqa: S105  # the variable's name
DEFAULT_DAG: Final = "plan_approval"
TASK: Final = "approve_plan"
APPROVE: Final = "Approve"
REJECT: Final = "Reject"
_TOKEN: Final = re.compile(r"[!-~]+")


class AirflowRequestError(JobError, exit_code=3):
    """Raised when Airflow does not answer, or refuses the token."""


def find_access(url: str | None) -> AirflowRest | None:
    """Return the Airflow that a command answers through; None if none is named."""
    root = (url or os.environ.get(URL_VARIABLE) or "").strip().rstrip("/")
    if not root:
        return None
    try:
        parts = urlsplit(root)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.username
    except ValueError:
        is_address = False
    if not is_address or not root.isprintable() or " " in root:
        raise UsageError("that is no address of Airflow: give --airflow-url https://HOST:PORT, without user")
    found = read_token(TOKEN_VARIABLE, TOKEN_FILE_VARIABLE)
    if found is None:
        raise UsageError(
            f"Airflow at {root} needs your token: put one of its POST /auth/token into {TOKEN_VARIABLE}, or "
            f"into a file that {TOKEN_FILE_VARIABLE} names"
        )
    # http.client would quote a token that no header can have.
    name, token = found
    if _TOKEN.fullmatch(token) is None:
        raise UsageError(f"{name} holds no token: a token is one word of letters, digits and signs")
    return AirflowRest(root, token)


def answer_request(airflow: AirflowRest, request: Mapping[str, Any], *, approve: bool, reason: str) -> Actor:
    """Approve or reject a plan; return the user as Airflow authenticated the token."""
    dag, run = request.get("dag_id") or DEFAULT_DAG, request["run_id"]
    path = f"dags/{quote(dag, safe='')}/dagRuns/{quote(run, safe='')}/taskInstances/{TASK}/-1/hitlDetails"
    body = {
        "chosen_options": [APPROVE if approve else REJECT],
        "params_input": {REASON: reason, SENT_BY: sent_by_command()},
    }
    plan = f"plan {request['plan_id'][:12]}"
    try:
        answer = airflow.request("PATCH", path, body)
    except AirflowRestError as error:
        raise _refusal(error, airflow.url, plan, f"the run {run} of {dag}") from error
    user = answer.get("responded_by")
    if not isinstance(user, dict) or "id" not in user:
        raise AirflowRequestError(f"what answers at {airflow.url} is no Airflow: it names no user")
    return Actor.of_airflow(user, sent_by_command())


def _refusal(error: AirflowRestError, url: str, plan: str, where: str) -> JobError:
    match error.status:
        case None:
            return AirflowRequestError(str(error))
        case HTTPStatus.UNAUTHORIZED:
            return AirflowRequestError(
                f"Airflow at {url} refuses the token (401): get a new one from POST /auth/token"
            )
        case HTTPStatus.FORBIDDEN:
            return NotAnApproverError(f"{plan}: Airflow does not let this user answer: {error.detail}")
        case HTTPStatus.NOT_FOUND:
            return NotFoundError(f"{plan}: Airflow at {url} does not ask about it in {where}")
        case HTTPStatus.CONFLICT:
            return NotWaitingError(f"{plan}: {where} has an answer already")
    return AirflowRequestError(f"Airflow at {url} answers {error.status}: {error.detail}")
