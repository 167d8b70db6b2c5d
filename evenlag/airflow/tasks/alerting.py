"""Notifications and metrics: the notifier named in the environment, and Airflow's metrics backend."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk.bases.notifier import BaseNotifier

from evenlag.airflow.compat import AirflowFailException, send_gauge
from evenlag.safe_text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.monitoring.alerts import AlertChanges

NOTIFIER_VARIABLE: Final = "EVENLAG_NOTIFIER"
METRIC_PREFIX: Final = "evenlag"


def load_notifier() -> BaseNotifier | None:
    """Load the notifier that ``EVENLAG_NOTIFIER`` names as ``package.module:name``.

    The name is a notifier, or a class or function that returns one without arguments. Only tasks import it,
    not the scheduler or the DAG processor.

    None if the variable is not set.
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
    """Send metrics to Airflow's metrics backend, if one is configured.

    The cluster is a tag; for StatsD, which has no tags, it is a part of the name.

    dag_prefix: Prefix of the DAGs' ids; a further tag, so that two policies may name their clusters alike.
    """
    tags = {"cluster": cluster} | ({"dag_prefix": dag_prefix} if dag_prefix else {})
    for name, value in figures.items():
        send_gauge(f"{METRIC_PREFIX}.{name}", value, tags)
