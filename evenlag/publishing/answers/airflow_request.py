"""Answers an approval request through Airflow's REST API, as the user whose token is given.

Airflow authenticates the user, checks the approvers and resumes the task, which records the decision and
publishes the plan. So this needs neither write access to the lake nor Kafka.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from evenlag.errors import JobError, NothingThereError, UsageError
from evenlag.policy.secrets import SecretRef
from evenlag.publishing.answers.actors import (
    REASON,
    SENT_BY,
    Actor,
    NotAnApproverError,
    sent_by_command,
)
from evenlag.publishing.waiting_plans import NotWaitingError

if TYPE_CHECKING:
    from collections.abc import Mapping

URL_VARIABLE: Final = "EVENLAG_AIRFLOW_URL"
TOKEN_VARIABLE: Final = "EVENLAG_AIRFLOW_TOKEN"  # noqa: S105  # the variable's name
TOKEN_FILE_VARIABLE: Final = "EVENLAG_AIRFLOW_TOKEN_FILE"  # noqa: S105  # as above
DEFAULT_DAG: Final = "plan_approval"
TASK: Final = "approve_plan"
APPROVE: Final = "Approve"
REJECT: Final = "Reject"
_TIMEOUT_S: Final = 30.0
_MAX_DETAIL: Final = 200
_TOKEN: Final = re.compile(r"[!-~]+")


class AirflowRequestError(JobError):
    """Raised when Airflow does not answer, or refuses the token."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class AirflowAccess:
    """An Airflow and the token of a user of it.

    url: Root URL of its API server.
    token: The token; never shown.
    """

    url: str
    token: str

    def __repr__(self) -> str:
        """Return the URL only."""
        return f"AirflowAccess({self.url!r})"


def find_access(url: str | None) -> AirflowAccess | None:
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
    file = os.environ.get(TOKEN_FILE_VARIABLE)
    if os.environ.get(TOKEN_VARIABLE):
        name, token = TOKEN_VARIABLE, SecretRef(env=TOKEN_VARIABLE).read().strip()
    elif file:
        name, token = TOKEN_FILE_VARIABLE, SecretRef(file=Path(file)).read().strip()
    else:
        raise UsageError(
            f"Airflow at {root} needs your token: put one of its POST /auth/token into {TOKEN_VARIABLE}, or "
            f"into a file that {TOKEN_FILE_VARIABLE} names"
        )
    # http.client would quote a token that no header can have.
    if _TOKEN.fullmatch(token) is None:
        raise UsageError(f"{name} holds no token: a token is one word of letters, digits and signs")
    return AirflowAccess(root, token)


def answer_request(access: AirflowAccess, request: Mapping[str, Any], *, approve: bool, reason: str) -> Actor:
    """Answer an approval request.

    Returns the user as Airflow authenticated the token.
    approve: Whether the plan is approved; else it is rejected.
    """
    dag, run = request.get("dag_id") or DEFAULT_DAG, request["run_id"]
    path = f"dags/{quote(dag, safe='')}/dagRuns/{quote(run, safe='')}/taskInstances/{TASK}/-1/hitlDetails"
    body = {
        "chosen_options": [APPROVE if approve else REJECT],
        "params_input": {REASON: reason, SENT_BY: sent_by_command()},
    }
    plan = f"plan {request['plan_id'][:12]}"
    try:
        answer = _patch(access, path, body)
    except urllib.error.HTTPError as error:
        refusal = _refusal(error, access, plan, f"the run {run} of {dag}")
        raise refusal from error
    except (OSError, ValueError) as error:
        raise AirflowRequestError(f"no Airflow answers at {access.url}: {error}") from error
    user = answer.get("responded_by")
    if not isinstance(user, dict) or "id" not in user:
        raise AirflowRequestError(f"what answers at {access.url} is no Airflow: it names no user")
    return Actor.of_airflow(user, sent_by_command())


def _patch(access: AirflowAccess, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Send a PATCH request; urllib follows no redirect of one, so the token goes to this address only."""
    headers = {"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(  # noqa: S310  # http(s), by find_access
        f"{access.url}/api/v2/{path}", json.dumps(body).encode(), headers, method="PATCH"
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # as above
        content = json.load(answer)
    return content if isinstance(content, dict) else {}


def _refusal(error: urllib.error.HTTPError, access: AirflowAccess, plan: str, where: str) -> JobError:
    detail = _detail(error)
    if error.code == HTTPStatus.UNAUTHORIZED:
        return AirflowRequestError(
            f"Airflow at {access.url} refuses the token (401): get a new one from POST /auth/token"
        )
    if error.code == HTTPStatus.FORBIDDEN:
        return NotAnApproverError(f"{plan}: Airflow does not let this user decide: {detail}")
    if error.code == HTTPStatus.NOT_FOUND:
        return NothingThereError(f"{plan}: Airflow at {access.url} does not ask about it in {where}")
    if error.code == HTTPStatus.CONFLICT:
        return NotWaitingError(f"{plan}: {where} has an answer already")
    return AirflowRequestError(f"Airflow at {access.url} answers {error.code}: {detail}")


def _detail(error: urllib.error.HTTPError) -> str:
    """The reason that Airflow gives, on one line."""
    try:
        content = error.read().decode(errors="replace")
    except OSError:
        return "no reason"
    try:
        told = json.loads(content)
        content = str(told["detail"] if isinstance(told, dict) and "detail" in told else told)
    except ValueError:
        pass
    return " ".join(content.split())[:_MAX_DETAIL] or "no reason"
