"""Telling people and monitoring: the notifier that is named in the environment, and Airflow's own metrics."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.monitoring.alerts import AlertChanges

NOTIFIER_VARIABLE: Final = "EVENLAG_NOTIFIER"
METRIC_PREFIX: Final = "evenlag"


def load_notifier() -> BaseNotifier | None:
    """Make the notifier that ``EVENLAG_NOTIFIER`` names as ``package.module:name``; None when it is not set.

    The name stands for a notifier, or for what makes one when it is called without arguments: a class, a
    function. It is read in the task: neither the scheduler nor the DAG processor imports it.

    Raises
    ------
    AirflowFailException
        When it cannot be imported, or is no notifier; the message says what was found.
    """
    named = os.environ.get(NOTIFIER_VARIABLE, "").strip()
    if not named:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise AirflowFailException(
            f"{NOTIFIER_VARIABLE}={named} cannot be imported ({type(error).__name__}: {error}): give "
            "package.module:name of a notifier, or of what makes one"
        ) from error
    notifier = found if isinstance(found, BaseNotifier) else found() if callable(found) else None
    if not isinstance(notifier, BaseNotifier):
        raise AirflowFailException(
            f"{NOTIFIER_VARIABLE}={named} is no notifier of Airflow (airflow.sdk.BaseNotifier) and makes none"
        )
    return notifier


def notify(notifier: BaseNotifier, changes: AlertChanges, cluster: str, context: Mapping[str, Any]) -> None:
    """Call a notifier as Airflow does, with what is new in its context.

    Its templated fields may use ``evenlag_cluster``, ``evenlag_text`` (a line a change), ``evenlag_raised``
    and ``evenlag_cleared`` (each with ``kind``, ``subject`` and ``message``).
    """
    about = {
        "evenlag_cluster": cluster,
        "evenlag_text": changes.text,
        "evenlag_raised": list(changes.raised),
        "evenlag_cleared": list(changes.cleared),
    }
    notifier({**context, **about})


def emit_metrics(figures: Mapping[str, float], cluster: str) -> None:
    """Hand figures to the metrics backend that Airflow is set up with; without one, nothing happens.

    The cluster is a tag where the backend knows tags, and part of the name for StatsD, which does not.
    """
    from airflow.sdk.observability import stats

    for name, value in figures.items():
        stats.gauge(f"{METRIC_PREFIX}.{name}", value, tags={"cluster": cluster})
