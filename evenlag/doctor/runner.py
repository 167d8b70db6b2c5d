"""Collects the checks for a policy, a lake and this machine, selects the requested ones, and runs them."""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from evenlag.context import DEFAULT_LAKE, find_policy, policy_cluster
from evenlag.doctor.airflow_checks import airflow_checks
from evenlag.doctor.kafka_checks import KafkaView, NotConnectedError, kafka_checks
from evenlag.doctor.lake_checks import lake_checks
from evenlag.doctor.model import Check, Finding, Lane, Result, failed, ok, skipped
from evenlag.doctor.policy_checks import policy_checks
from evenlag.doctor.spark_checks import spark_checks
from evenlag.errors import JobError, PolicyError, UsageError
from evenlag.formatting import did_you_mean
from evenlag.lake.reader import LakeReader
from evenlag.monitoring.lake_health import read_freshness
from evenlag.policy.loader import LAKE_VARIABLE, LoadedPolicy, find_policy_path
from evenlag.redaction import redact

_LOGIN: Final = "brokers.login"
_CONNECTED_AREAS: Final = frozenset({"brokers", "permissions", "topics", "groups"})
# Includes areas that may have no checks, for example without a policy.
_ALL_AREAS: Final = _CONNECTED_AREAS | {"policy", "lake", "spark", "airflow", "freshness"}
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Request:
    """What to check: the command's options. A request to Kafka may take half of `check_timeout_s`."""

    config: Path | None = None
    lake: str | None = None
    cluster: str | None = None
    airflow_url: str | None = None
    max_age_s: int | None = None
    probe_writes: bool = False
    check_timeout_s: float = 20.0
    dag_prefix: str = ""


def gather_lanes(request: Request) -> list[Lane]:
    """Collect all possible checks, those of the policy first. An invalid policy is a finding."""
    loaded, problem = None, skipped("there is no policy file: give one with --config")
    try:
        loaded = find_policy(request.config)
    except PolicyError as error:
        problem = failed(str(error), "correct it: evenlag policy check says when it is right")
    root = request.lake or (loaded.policy.lake if loaded else os.environ.get(LAKE_VARIABLE))
    reader = LakeReader(root or str(DEFAULT_LAKE))
    if loaded is None:
        lanes = [Lane(None, (Check("policy", "valid", lambda: problem),))]
    else:
        lanes = _lanes_of_policy(loaded, reader, request)
    policy = loaded.policy if loaded else None
    of_this_machine = (
        lake_checks(reader, policy, probe_writes=request.probe_writes),
        spark_checks(os.environ),
        airflow_checks(policy, request.airflow_url, os.environ, dag_prefix=request.dag_prefix),
    )
    return [*lanes, *(Lane(None, tuple(checks)) for checks in of_this_machine)]


def select_lanes(lanes: Sequence[Lane], only: Sequence[str], skip: Sequence[str]) -> list[Lane]:
    """Select checks by area or full name; the login is kept if other checks need its connection."""
    known = {name for lane in lanes for check in lane.checks for name in (check.area, check.full_name)}
    # Without a valid policy, the areas that need one have no checks: who asks for them sees why.
    without_checks = _ALL_AREAS - known
    is_policy_wanted = any(name.partition(".")[0] in without_checks for name in only)
    for name in (*only, *skip):
        if name not in known and name.partition(".")[0] not in without_checks:
            meant = did_you_mean(name, sorted(known)) or f": {sorted(known)}"
            raise UsageError(f"there is no check {name!r}{meant}")

    def wanted(check: Check) -> bool:
        names = {check.area, check.full_name}
        is_asked = not only or bool(names & set(only)) or (is_policy_wanted and check.area == "policy")
        return is_asked and not names & set(skip)

    kept = []
    for lane in lanes:
        checks = tuple(check for check in lane.checks if wanted(check))
        if checks:
            # The check that connects comes first, even if it was not requested.
            login = tuple(check for check in lane.checks if check.full_name == _LOGIN and check not in checks)
            needs_it = any(check.area in _CONNECTED_AREAS for check in checks)
            kept.append(replace(lane, checks=(*(login if needs_it else ()), *checks)))
    return kept


def _lanes_of_policy(loaded: LoadedPolicy, reader: LakeReader, request: Request) -> list[Lane]:
    policy = loaded.policy
    names = list(policy.clusters) if request.cluster is None else [policy_cluster(loaded, request.cluster)]
    origin = str(find_policy_path(request.config))
    lanes = [Lane(None, tuple(policy_checks(loaded, origin, names)))]
    timeout_ms = max(1_000, round(500 * request.check_timeout_s))
    for name in names:
        view = KafkaView(policy, name, reader, timeout_ms=timeout_ms)
        checks = kafka_checks(view, loaded, probe_writes=request.probe_writes)
        lanes.append(Lane(name, tuple(checks), view.close))
        look = partial(_check_freshness, reader, name, policy.clusters[name].schedule, request.max_age_s)
        lanes.append(Lane(name, (Check("freshness", "snapshot", look),)))
    return lanes


def _check_freshness(
    reader: LakeReader, cluster: str, schedule: str | None, max_age_s: int | None
) -> list[Finding]:
    found = read_freshness(reader, cluster, schedule, datetime.now(UTC), max_age_s=max_age_s)
    if found.is_fresh:
        return ok(found.reason)
    return failed(found.reason, "look at the last runs of the cycle (docs/runbook.md)")


def run_lanes(lanes: Iterable[Lane], *, check_timeout_s: float, timeout_s: float) -> list[Result]:
    """Run the checks of all lanes, with the lanes in parallel; one result per check, in their order.

    After a check that exceeds its timeout, the rest of its lane is skipped: it depends on the same resource.
    """
    running = [_RunningLane(lane) for lane in lanes]
    deadline = time.monotonic() + timeout_s
    while any(one.goes_on(check_timeout_s) for one in running) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return [result for one in running for result in one.results(check_timeout_s)]


class _RunningLane:
    """A lane in its own thread. The thread is a daemon: a check that hangs does not block the exit."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._done: list[Result] = []
        self._began_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True, name="evenlag-doctor")
        self._thread.start()

    def goes_on(self, check_timeout_s: float) -> bool:
        """Whether a check runs, within its timeout."""
        return self._thread.is_alive() and time.monotonic() - self._began_at <= check_timeout_s

    def results(self, check_timeout_s: float) -> list[Result]:
        """One result per check; a check without a result is reported as failed or skipped."""
        done = list(self._done)
        for number, check in enumerate(self._lane.checks[len(done) :]):
            findings = (
                failed(f"no answer within {check_timeout_s:g} s", "look whether what it asks is overloaded")
                if number == 0
                else skipped(f"{self._lane.checks[len(self._done)].full_name} did not answer before it")
            )
            done.append(Result(check.full_name, self._lane.cluster, tuple(findings)))
        return done

    def _run(self) -> None:
        try:
            for check in self._lane.checks:
                self._began_at = time.monotonic()
                findings = tuple(_look(check) or skipped("there is nothing to look at"))
                self._done.append(Result(check.full_name, self._lane.cluster, findings))
        finally:
            with contextlib.suppress(Exception):
                self._lane.close()


def _look(check: Check) -> Sequence[Finding]:
    """Run a check. An exception becomes a finding, and the other checks still run."""
    try:
        return check.look()
    except JobError as error:
        return failed(redact(error.message), redact(error.remedy) or "as the message says")
    except NotConnectedError:
        return skipped("there is no connection: see brokers.login")
    except ModuleNotFoundError as error:
        return skipped(f"{error.name} is not installed here")
    except Exception as error:  # noqa: BLE001  # a check looks at the outside world, which may do anything
        return failed(
            f"could not be looked at: {type(error).__name__}: {redact(str(error))}", "see the message"
        )
