"""Checks of Airflow, from the environment of an Airflow machine or through the REST API."""

import configparser
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from shlex import quote as quoted
from typing import Any, Final
from urllib.parse import quote

from evenlag.airflow_rest import TOKEN_VARIABLE, AirflowRest, AirflowRestError
from evenlag.bundle import DAG_PACKAGE, dag_texts
from evenlag.doctor.model import Check, Finding, failed, ok, skipped, warning
from evenlag.doctor.spark_checks import CONNECTION_VARIABLE, find_remote, read_connection
from evenlag.enums import Mode
from evenlag.policy.cron import last_due
from evenlag.policy.settings import Policy
from evenlag.spark_connect import CONNECT_EXAMPLE, CONNECT_TYPE, SUBMIT_CONNECTION

_HEARTBEAT_KEY: Final = "task_instance_heartbeat_timeout"
_HEARTBEAT_DEFAULT_S: Final = 300.0
_REST_TIMEOUT_S: Final = 5.0
_PAGE: Final = "/evenlag/overview"
_PAGE_REMEDY: Final = (
    "in the API server's environment, set EVENLAG_CONFIG, or with DAG prefixes EVENLAG_REPORT_LAKES (the "
    "page then opens after the first cycle); the server has to read the lake, too; its log has the reason"
)
_NEEDED_PARTS: Final = ("metadatabase", "scheduler", "dag_processor")
# Before this version, a task that waits for a person is deferred: the triggerer takes the answer.
_ANSWERS_WITHOUT_TRIGGERER: Final = (3, 3)


def airflow_checks(
    policy: Policy | None, url: str | None, environ: Mapping[str, str], *, dag_prefix: str = ""
) -> list[Check]:
    """Return the checks of Airflow; the REST checks are skipped without the root URL of its API server."""
    token = environ.get(TOKEN_VARIABLE)
    rest = None if url is None else AirflowRest(url, token, timeout_s=_REST_TIMEOUT_S)

    def by_rest(name: str, look: Callable[[AirflowRest], list[Finding]]) -> Check:
        return Check("airflow", name, lambda: _by_rest(rest, look))

    return [
        Check("airflow", "connection", lambda: check_connection(environ)),
        Check("airflow", "dag_files", lambda: check_dag_files(environ)),
        Check("airflow", "heartbeat", lambda: _check_heartbeat(policy, environ)),
        by_rest("health", lambda found: check_health(found, policy)),
        by_rest("imports", lambda found: imports_findings(found.get("importErrors", limit=100))),
        by_rest("dags", lambda found: _check_dags(found, policy, dag_prefix)),
        by_rest("pools", lambda found: _check_pools(found, policy, dag_prefix)),
        by_rest("page", check_page),
    ]


def check_connection(environ: Mapping[str, str]) -> list[Finding]:
    """Check that the Spark connection in the environment names a Connect server or, as JSON, a master.

    With a connection URI to a master the provider silently submits to YARN.
    """
    if not environ.get(CONNECTION_VARIABLE):
        return skipped(f"{CONNECTION_VARIABLE} is not set here: the connection may be in Airflow's database")
    connection = read_connection(environ)
    remedy = f"set {CONNECTION_VARIABLE} to JSON: {SUBMIT_CONNECTION}, or {CONNECT_EXAMPLE}"
    if connection is None:
        return failed("the connection spark_default is no JSON: the provider would submit to YARN", remedy)
    if connection.get("conn_type") == CONNECT_TYPE:
        remote = find_remote(environ)
        if remote is None or remote.server is None:
            return failed(f"the connection spark_default: {remote.fault if remote else 'no server'}", remedy)
        return ok(f"spark_default: {remote.server.name}")
    if connection.get("conn_type") != "spark" or not connection.get("host"):
        message = "the connection spark_default is of neither type Spark nor Spark Connect, or names no host"
        return failed(message, remedy)
    return ok(f"spark_default: {connection['host']}")


def check_dag_files(environ: Mapping[str, str]) -> list[Finding]:
    """Check that the DAG files that Airflow parses are those of the installed evenlag."""
    folder = _dags_folder(environ)
    if folder is None:
        return skipped("neither AIRFLOW_HOME nor AIRFLOW__CORE__DAGS_FOLDER is set here")
    installed = folder / DAG_PACKAGE
    if not installed.is_dir():
        if (folder / "lag_rebalance.py").is_file():
            return ok(f"{folder} is a checkout's own folder")
        if (file := _own_dag_file(folder)) is not None:
            return ok(f"{file} calls make_dags")
        remedy = f"evenlag dags install {folder}, or call evenlag.airflow.make_dags in a DAG file"
        return failed(f"{folder} holds no {DAG_PACKAGE}, and no DAG file calls make_dags", remedy)
    wanted = dag_texts()
    found = {str(file.relative_to(installed)): file.read_text("utf-8") for file in installed.rglob("*.py")}
    stale = sorted({name for name, _ in wanted.items() ^ found.items()})
    if stale:
        message = f"{len(stale)} files in {installed} are of another version: {', '.join(stale[:3])}"
        return failed(message, f"evenlag dags install {folder}")
    return ok(f"{len(wanted)} files in {installed} are this version's")


def _own_dag_file(folder: Path) -> Path | None:
    for file in sorted(folder.rglob("*.py")):
        with suppress(OSError):
            if b"make_dags" in file.read_bytes():
                return file
    return None


def _dags_folder(environ: Mapping[str, str]) -> Path | None:
    if given := environ.get("AIRFLOW__CORE__DAGS_FOLDER"):
        return Path(given)
    home = environ.get("AIRFLOW_HOME")
    if home is None:
        return None
    configured = _config(home, "core", "dags_folder")
    return Path(configured) if configured else Path(home) / "dags"


def _config(home: str, section: str, key: str) -> str | None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(Path(home) / "airflow.cfg", encoding="utf-8")
    except configparser.Error:
        return None
    return parser.get(section, key, fallback=None)


def _check_heartbeat(policy: Policy | None, environ: Mapping[str, str]) -> list[Finding]:
    home = environ.get("AIRFLOW_HOME")
    given = environ.get(f"AIRFLOW__SCHEDULER__{_HEARTBEAT_KEY.upper()}")
    if policy is None or (home is None and given is None):
        return skipped("this is no machine of Airflow's, or there is no policy")
    configured = given or (_config(home, "scheduler", _HEARTBEAT_KEY) if home else None)
    schedules = [cluster.schedule for cluster in policy.clusters.values() if cluster.schedule]
    return heartbeat_findings(float(configured or _HEARTBEAT_DEFAULT_S), schedules, datetime.now(UTC))


def heartbeat_findings(timeout_s: float, schedules: Sequence[str], now: datetime) -> list[Finding]:
    """Check that the heartbeat timeout is shorter than the interval between runs.

    After a scheduler is killed, its task blocks the DAG for the timeout. That should cost at most one run.
    """
    if not schedules:
        return skipped("no cluster has a schedule to hold it against")
    runs = [last_due(schedule, now, 2) for schedule in schedules]
    shortest_s = min(abs((newest - before).total_seconds()) for newest, before in runs)
    message = f"{_HEARTBEAT_KEY} is {timeout_s:g} s, the shortest schedule {shortest_s:g} s"
    if timeout_s > shortest_s:
        remedy = f"AIRFLOW__SCHEDULER__{_HEARTBEAT_KEY.upper()}={max(60, int(shortest_s // 2))}"
        return warning(f"{message}: a killed worker blocks more than one run", remedy)
    return ok(message)


def imports_findings(answer: Mapping[str, Any]) -> list[Finding]:
    """Check that every DAG file imports without an error."""
    found: list[Finding] = []
    for error in answer.get("import_errors") or ():
        last_line = (error.get("stack_trace") or "").strip().rpartition("\n")[2]
        found += failed(f"{error['filename']}: {last_line}", "evenlag policy check")
    return found or ok("every DAG file imports")


def _dag_ids(policy: Policy, dag_prefix: str) -> list[str]:
    names = list(dict.fromkeys(map(policy.cycle_dag, policy.clusters)))
    names += ["assignment_audit", "plan_approval", "table_maintenance"]
    return [f"{dag_prefix}{name}" for name in names]


def _check_pools(rest: AirflowRest, policy: Policy | None, dag_prefix: str) -> list[Finding]:
    if policy is None:
        return skipped("without a policy it is not known which DAGs there should be")
    wanted: dict[str, list[str]] = {}
    dag_ids = _dag_ids(policy, dag_prefix)
    if policy.comparison is not None:
        dag_ids.append(f"{dag_prefix}plan_comparison")
    for dag_id in dag_ids:
        # airflow.dags reports a DAG that does not exist.
        for task in (_find(rest, f"dags/{quote(dag_id)}/tasks") or {"tasks": ()})["tasks"]:
            wanted.setdefault(str(task["pool"]), []).append(f"{dag_id}.{task['task_id']}")
    pools = {pool: _find(rest, f"pools/{quote(pool, safe='')}") for pool in wanted}
    return pools_findings(
        wanted, {name: None if pool is None else int(pool["slots"]) for name, pool in pools.items()}
    )


def _find(rest: AirflowRest, path: str) -> dict[str, Any] | None:
    """Request a resource; None if Airflow does not know it."""
    try:
        return rest.get(path)
    except AirflowRestError as error:
        if error.is_not_found:
            return None
        raise


# They run one Spark task at a time each, for minutes.
_BACKGROUND: Final = ("assignment_audit.", "plan_comparison.", "table_maintenance.")


def pools_findings(wanted: Mapping[str, Sequence[str]], slots: Mapping[str, int | None]) -> list[Finding]:
    """Check that the pools of the tasks exist (else: None) and have slots for cycles; -1 is no limit.

    Airflow never starts a task of a pool that does not exist, and the task does not fail either.
    """
    found: list[Finding] = []
    for pool, tasks in sorted(wanted.items()):
        if not slots.get(pool):
            what = "does not exist" if slots.get(pool) is None else "has no slots"
            message = (
                f"the pool {pool} {what}: Airflow never starts {tasks[0]} and {len(tasks) - 1} more tasks"
            )
            found += failed(message, f"airflow pools set {quoted(pool)} 2 evenlag")
        background = [name for name in _BACKGROUND if any(name in task for task in tasks)]
        has_cycles = any(task.endswith(".observe") for task in tasks)
        if background and has_cycles and 0 < (slots.get(pool) or 0) <= len(background):
            message = f"cycles wait in the pool {pool} while {background[0].rstrip('.')} runs"
            found += warning(
                message, "make_dags(background_pool=…): a pool of its own for audit and maintenance"
            )
    return found or ok(f"the pools exist: {', '.join(sorted(wanted))}")


def _check_dags(rest: AirflowRest, policy: Policy | None, dag_prefix: str) -> list[Finding]:
    if policy is None:
        return skipped("without a policy it is not known which DAGs there should be")
    dag_ids = _dag_ids(policy, dag_prefix)
    return dags_findings({dag_id: _find(rest, f"dags/{quote(dag_id)}") for dag_id in dag_ids})


def dags_findings(dags: Mapping[str, Mapping[str, Any] | None]) -> list[Finding]:
    """Check that each DAG exists (None: it does not) and is not paused."""
    found: list[Finding] = []
    for dag_id, dag in dags.items():
        if dag is None:
            remedy = (
                "see airflow.imports; EVENLAG_CONFIG of the DAG processor; --dag-prefix, if make_dags has one"
            )
            found += failed(f"{dag_id} does not exist", remedy)
        elif dag.get("is_paused"):
            found += warning(f"{dag_id} is paused", f"airflow dags unpause {dag_id}")
    return found or ok(f"{len(dags)} DAGs exist and are not paused")


def _by_rest(rest: AirflowRest | None, look: Callable[[AirflowRest], list[Finding]]) -> list[Finding]:
    """Skip a check without an Airflow to ask; a failure is that it does not answer."""
    if rest is None:
        return skipped("no --airflow-url was given")
    try:
        return look(rest)
    except AirflowRestError as error:
        message = str(error)
        if error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            message = f"Airflow wants a login ({error.status}): put a token into {TOKEN_VARIABLE}"
        return failed(message, "start it, or correct --airflow-url")


def check_page(rest: AirflowRest) -> list[Finding]:
    """Check that the entry *evenlag* of Airflow's navigation opens."""
    try:
        rest.send("GET", _PAGE)
    except AirflowRestError as error:
        if error.is_not_found:
            message = "Airflow's navigation has no entry evenlag: the API server has no evenlag[airflow]"
            return warning(message, "install it there and restart the API server, or use evenlag serve")
        if error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE}:
            raise
        # Without a login, this is refused as well.
        rest.get("dags", limit=1)
        return failed(f"the page {_PAGE} is answered with {error.status}", _PAGE_REMEDY)
    return ok(f"{_PAGE} opens")


def check_health(rest: AirflowRest, policy: Policy | None) -> list[Finding]:
    """Check the health of Airflow's parts; of the triggerer, if requests for approval need it."""
    asks = policy is not None and any(rule.mode is Mode.APPROVE for rule in policy.groups)
    version = str(rest.get("version")["version"]) if asks else ""
    return health_findings(rest.get("monitor/health"), needs_triggerer=asks and needs_triggerer(version))


def needs_triggerer(version: str) -> bool:
    """Return whether the triggerer takes the answer to a request for approval.

    Examples
    --------
    >>> [needs_triggerer(version) for version in ("3.1.8", "3.2.0", "3.3.0", "4.0.0rc1", "unknown")]
    [True, True, False, False, False]
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and tuple(map(int, found.groups())) < _ANSWERS_WITHOUT_TRIGGERER


def health_findings(answer: Mapping[str, Any], *, needs_triggerer: bool = False) -> list[Finding]:
    """Check that database, scheduler and DAG processor are healthy; a missing part is a failure."""
    found: list[Finding] = []
    for part in (*_NEEDED_PARTS, *(["triggerer"] if needs_triggerer else [])):
        state = (answer.get(part) or {}).get("status")
        if state != "healthy":
            why = ": no answer to a request for approval arrives" if part == "triggerer" else ""
            message = f"{part} is {state or 'missing'}{why}"
            found += failed(message, f"start it, or look at its log: airflow {_command(part)}")
    also = " and triggerer" if needs_triggerer else ""
    return found or ok(f"database, scheduler and DAG processor{also} are healthy")


def _command(part: str) -> str:
    return {"metadatabase": "db check", "dag_processor": "dag-processor"}.get(part, part)
