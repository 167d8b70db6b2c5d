"""The tasks of the DAGs that need no JVM, with their assets, notifications and metrics.

``evenlag://<cluster>/snapshots`` is updated by every snapshot, ``…/plans`` and ``…/hints`` only if there is
a new plan or a new hint. A prefix of the DAG ids is part of the name, ``evenlag://<prefix><cluster>/hints``,
so that two policies may name their clusters alike. Cluster names and prefixes need no escaping in a URI.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib import import_module
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow.sdk import Asset, AssetAlias, TriggerRule, get_current_context, task
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.log import mask_secret

from evenlag.airflow.compat import AirflowFailException, AirflowSkipException, send_gauge
from evenlag.airflow.kafka_connection import kafka_connection
from evenlag.airflow.spark_task import SPARK_TIMEOUT, slot_of
from evenlag.enums import PlanEvent
from evenlag.errors import FencedPublisherError, JobError
from evenlag.lake.tables import PLAN_EVENTS, PLANS, SNAPSHOTS
from evenlag.logging_setup import log_fields, named_logger
from evenlag.policy.loader import load_policy
from evenlag.redaction import tell_secrets
from evenlag.safe_text import printable, printable_lines

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader
    from evenlag.monitoring.alerts import AlertChanges

SCHEME: Final = "evenlag"
NOTIFIER_VARIABLE: Final = "EVENLAG_NOTIFIER"
METRIC_PREFIX: Final = "evenlag"
PUBLISH_TIMEOUT: Final = timedelta(minutes=3)
# A cycle opens at most so many requests for approval.
MAX_NEW_APPROVALS: Final = 100
# Airflow fails a task that returns more for mapped tasks than `max_map_length`, by default 1,024.
MAX_MAPPED: Final = 1_000
_LOG = named_logger(__name__)
_Result = TypeVar("_Result")


@contextmanager
def fail_or_try_again(**about: str | None) -> Iterator[None]:
    """Let Airflow retry retriable errors, skip plans that do not wait, and fail at once for all others.

    Secrets are registered with Airflow's masker; `about` are context fields of log records.
    """
    from evenlag.publishing.approvals import NotWaitingError

    tell_secrets(mask_secret)
    try:
        with log_fields(**about):
            yield
    except FencedPublisherError:
        # Another publisher was active, for an approved plan or a command: a retry reads the current state.
        raise
    except NotWaitingError as error:
        raise AirflowSkipException(printable_lines(str(error))) from error
    except JobError as error:
        if error.retriable:
            raise
        raise AirflowFailException(printable_lines(str(error))) from error


@contextmanager
def _in_cycle(context: Mapping[str, Any], cluster: str, step: str) -> Iterator[tuple[str, datetime]]:
    """Run a step of a cycle as :func:`fail_or_try_again`; provides the run's id and its slot."""
    run = context["dag_run"]
    slot = slot_of(run)
    with fail_or_try_again(run_id=run.run_id, cluster=cluster, step=step, slot=slot.isoformat()):
        yield run.run_id, slot


def plan_of(context: Mapping[str, Any]) -> tuple[str, str]:
    """Return the cluster and the plan that a run is for."""
    params = context["params"]
    return str(params["cluster"]), str(params["plan_id"])


class Product(StrEnum):
    """What a cycle makes of a cluster."""

    SNAPSHOTS = "snapshots"
    PLANS = "plans"
    HINTS = "hints"


def cluster_asset(dag_prefix: str, cluster: str, product: Product) -> Asset:
    """Return an asset of a cluster."""
    # Only the URI: a consumer that names the same URI means the same asset.
    return Asset(uri=f"{SCHEME}://{dag_prefix}{cluster}/{product}")


def product_alias(dag_id: str, product: Product) -> AssetAlias:
    """Return the alias of an asset: an outlet that is the asset is updated whenever its task succeeds."""
    return AssetAlias(name=f"{SCHEME}-{product}-{dag_id}")


def update_asset(
    context: Mapping[str, Any], dag_prefix: str, cluster: str, product: Product, *, count: int, slot: datetime
) -> None:
    """Update an asset of the running DAG's cluster if there are new plans or hints."""
    if count:
        alias = product_alias(context["dag"].dag_id, product)
        asset = cluster_asset(dag_prefix, cluster, product)
        context["outlet_events"][alias].add(asset, extra={"count": count, "slot": slot.isoformat()})


@task(execution_timeout=PUBLISH_TIMEOUT)
def publish(config: str, cluster: str, dag_prefix: str, kafka_conn_ids: Mapping[str, str]) -> dict[str, Any]:
    """Write the approved plans of this run's snapshot to the hint topic; needs no JVM."""
    from evenlag.publishing.publish import publish_hints

    context = get_current_context()
    with _in_cycle(context, cluster, "publish") as (run_id, slot), kafka_connection(kafka_conn_ids, cluster):
        report = publish_hints(load_policy(config), cluster, slot, run_id)
    update_asset(context, dag_prefix, cluster, Product.HINTS, count=len(report.published), slot=slot)
    return report.summary()


@task(execution_timeout=PUBLISH_TIMEOUT)
def find_waiting(config: str, clusters: Sequence[str]) -> list[dict[str, Any]]:
    """Find the plans that wait for approval, at most one per group; each gets a run of `plan_approval`.

    An error of a cluster is raised only if no other cluster has a plan that waits.
    """
    waiting = _for_each(clusters, lambda cluster: _find_waiting(config, cluster))
    # Each cluster's first plan, then each one's second: none is left out because another one has many.
    in_turn = (plan for plans in zip_longest(*waiting.values()) for plan in plans if plan is not None)
    return list(islice(in_turn, MAX_MAPPED))


def _find_waiting(config: str, cluster: str) -> list[dict[str, Any]]:
    from evenlag.publishing.approvals import find_waiting as find
    from evenlag.publishing.approvals import set_aside_shadowed

    with _in_cycle(get_current_context(), cluster, "find_waiting") as (run_id, slot):
        loaded = load_policy(config)
        plans = set_aside_shadowed(
            loaded, cluster, find(loaded, cluster, slot), run_id=run_id, now=datetime.now(UTC)
        )
    if len(plans) > MAX_NEW_APPROVALS:
        _LOG.warning(
            "%d plans wait for a person; this run asks about %d of them", len(plans), MAX_NEW_APPROVALS
        )
    return [
        {
            "trigger_run_id": approval_run_id(plan.head["plan_id"]),
            "conf": {"cluster": cluster, "plan_id": plan.head["plan_id"]},
        }
        for plan in plans[:MAX_NEW_APPROVALS]
    ]


@task(execution_timeout=PUBLISH_TIMEOUT, trigger_rule=TriggerRule.ALL_DONE)
def report(config: str, cluster: str, dag_prefix: str = "") -> dict[str, int]:
    """Send new and resolved alerts to the notifier, and metrics to Airflow's metrics backend."""
    return _report(config, cluster, dag_prefix)


@task(execution_timeout=SPARK_TIMEOUT, trigger_rule=TriggerRule.ALL_DONE)
def report_all(config: str, clusters: Sequence[str], dag_prefix: str) -> dict[str, dict[str, int]]:
    """Send alerts and metrics of clusters, and update their assets.

    An error of a cluster is raised only if all have one: Airflow forgets the updates of a task that fails.
    """
    from evenlag.lake.delta_log import one_look

    context = get_current_context()

    def report_one(cluster: str) -> dict[str, int]:
        with one_look():
            figures = _report(config, cluster, dag_prefix)
            update_assets(context, config, cluster, dag_prefix, Product)
        return figures

    return _for_each(clusters, report_one)


def _for_each(clusters: Sequence[str], work: Callable[[str], _Result]) -> dict[str, _Result]:
    """Return the results of the work for clusters; errors are logged, the first raised if all is empty."""
    found: dict[str, _Result] = {}
    failed: list[Exception] = []
    for cluster in clusters:
        try:
            found[cluster] = work(cluster)
        except Exception as error:  # noqa: BLE001  # the other clusters go on
            _LOG.exception("the task failed for the cluster %s", cluster)
            failed.append(error)
    if failed and not any(found.values()):
        raise failed[0]
    return found


def _report(config: str, cluster: str, dag_prefix: str) -> dict[str, int]:
    from evenlag.lake.delta_log import one_look
    from evenlag.monitoring.alerts import find_changes, record_changes
    from evenlag.overview.metrics import read_metrics

    now, context = datetime.now(UTC), get_current_context()
    with one_look(), _in_cycle(context, cluster, "report") as (run_id, _):
        loaded = load_policy(config)
        changes = find_changes(loaded, cluster, now)
        figures = read_metrics(loaded.policy.lake, cluster, now)
        emit_metrics(figures | {"alerts.standing": changes.num_standing}, cluster, dag_prefix=dag_prefix)
        if changes:
            _LOG.warning("%s", changes.text)
            if (notifier := load_notifier()) is not None:
                notify(notifier, changes, cluster, context)
        # After the notification: if it fails, the retry sends it again.
        record_changes(loaded, cluster, changes, run_id=run_id, now=now)
    return {
        "raised": len(changes.raised),
        "cleared": len(changes.cleared),
        "standing": changes.num_standing,
    }


def approval_run_id(plan_id: str) -> str:
    """Return the id of the run for a plan: one run per plan, however often it is triggered."""
    return f"approval__{plan_id}"


def update_assets(
    context: Mapping[str, Any], config: str, cluster: str, dag_prefix: str, products: Iterable[Product]
) -> None:
    """Update assets of a cluster by what the lake has of the run."""
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.snapshot_ids import floor_to_ms

    with _in_cycle(context, cluster, "decide") as (run_id, moment):
        reader, slot = LakeReader(load_policy(config).policy.lake), floor_to_ms(moment)
        counts = {product: _count(reader, product, cluster, run_id, slot) for product in products}
    for product, count in counts.items():
        update_asset(context, dag_prefix, cluster, product, count=count, slot=slot)


def _count(reader: LakeReader, product: Product, cluster: str, run_id: str, slot: datetime) -> int:
    """Count the snapshots or the plans of a slot, or the hints that a run has published."""
    from evenlag.lake.filters import matching
    from evenlag.publishing.sealing.verified_plans import oldest_day

    if product is Product.HINTS:
        published = matching(
            cluster=cluster, since=oldest_day(slot), event=PlanEvent.PUBLISHED, run_id=run_id
        )
        return reader.count(PLAN_EVENTS, filters=published)
    made = PLANS if product is Product.PLANS else SNAPSHOTS
    return reader.count(made, filters=matching(cluster=cluster, day=slot.date(), slot=slot))


@task(execution_timeout=PUBLISH_TIMEOUT)
def prepare(config: str, approvers: Sequence[str] | None) -> dict[str, Any]:
    """Open the request, and write its text."""
    from evenlag.publishing.approval_page import build_page
    from evenlag.publishing.approvals import request_approval

    context = get_current_context()
    run_id, (cluster, plan_id) = context["run_id"], plan_of(context)
    with fail_or_try_again(run_id=run_id, cluster=cluster, step="ask", plan_id=plan_id):
        request = request_approval(
            load_policy(config),
            cluster,
            plan_id,
            run_id=run_id,
            now=datetime.now(UTC),
            approvers=approvers,
            dag_id=context["dag"].dag_id,
        )
        page = build_page(request.plan, answer_by=request.answer_by)
    return {
        "subject": page.subject,
        "body": page.body,
        "answer_by": request.answer_by.isoformat(),
        "slot": request.plan.head["slot"].isoformat(),
    }


@task(task_id="publish", execution_timeout=PUBLISH_TIMEOUT)
def publish_plan(
    config: str, slot: str, dag_prefix: str, kafka_conn_ids: Mapping[str, str]
) -> dict[str, Any]:
    """Write this plan to the hint topic, with the same checks as in a cycle; needs no JVM."""
    from evenlag.publishing.publish import publish_hints
    from evenlag.publishing.writing.blind_writes import try_again_when_fenced

    context, moment = get_current_context(), datetime.fromisoformat(slot)
    run_id, (cluster, plan_id) = context["run_id"], plan_of(context)
    with (
        fail_or_try_again(run_id=run_id, cluster=cluster, step="publish", plan_id=plan_id, slot=slot),
        kafka_connection(kafka_conn_ids, cluster),
    ):
        loaded = load_policy(config)
        report = try_again_when_fenced(lambda: publish_hints(loaded, cluster, moment, run_id, only={plan_id}))
    update_asset(context, dag_prefix, cluster, Product.HINTS, count=len(report.published), slot=moment)
    unpublished = (*report.expired, *report.held, *report.not_taken_up)
    return report.summary() | {"reasons": [why for *_, why in unpublished]}


def load_notifier() -> BaseNotifier | None:
    """Load the notifier that ``EVENLAG_NOTIFIER`` names as ``package.module:name``, or what returns one.

    Only tasks import it, not the scheduler or the DAG processor.
    """
    named = os.environ.get(NOTIFIER_VARIABLE, "").strip()
    if not named:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        problem = f"{type(error).__name__}: {printable(str(error))}"
        raise AirflowFailException(
            f"{NOTIFIER_VARIABLE}={named} cannot be imported ({problem}): give package.module:name of a "
            "notifier, or of what makes one"
        ) from error
    notifier = found if isinstance(found, BaseNotifier) else found() if callable(found) else None
    if not isinstance(notifier, BaseNotifier):
        raise AirflowFailException(
            f"{NOTIFIER_VARIABLE}={named} is no notifier of Airflow (airflow.sdk.BaseNotifier) and makes none"
        )
    return notifier


def notify(notifier: BaseNotifier, changes: AlertChanges, cluster: str, context: Mapping[str, Any]) -> None:
    """Call a notifier as Airflow does, with the changes of alerts in its context.

    Its templated fields may use ``evenlag_cluster``, ``evenlag_text`` (one line per change), and
    ``evenlag_raised`` and ``evenlag_cleared`` (lists of ``kind``, ``subject`` and ``message``).
    """
    about = {
        "evenlag_cluster": cluster,
        "evenlag_text": changes.text,
        "evenlag_raised": list(changes.raised),
        "evenlag_cleared": list(changes.cleared),
    }
    notifier({**context, **about})


def emit_metrics(figures: Mapping[str, float], cluster: str, *, dag_prefix: str = "") -> None:
    """Send metrics to Airflow's backend; cluster and prefix are tags, in StatsD parts of the name."""
    tags = {"cluster": cluster} | ({"dag_prefix": dag_prefix} if dag_prefix else {})
    for name, value in figures.items():
        send_gauge(f"{METRIC_PREFIX}.{name}", value, tags)
