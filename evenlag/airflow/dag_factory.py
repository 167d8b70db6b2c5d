"""``make_dags``: evenlag's DAGs in a DAG file of one's own."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.airflow.dags import DAGS, DagOptions, DagPolicyError, read_dag_policy
from evenlag.airflow.spark_task import SPARK_CONNECTION, SparkOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from airflow.sdk import DAG

# A part of DAG ids and of asset URIs, in which these need no escaping.
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{0,100}")
_MADE: Final = "__evenlag_dag_ids__"


def make_dags(
    config: str | os.PathLike[str] | None = None,
    *,
    spark_conn_id: str = SPARK_CONNECTION,
    dag_prefix: str = "",
    pool: str | None = None,
    max_active_tis_per_dag: int = 1,
    queue: str | None = None,
    executor_config: Mapping[str, Any] | None = None,
    approvers: Sequence[str] | None = None,
    default_args: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    only: Collection[str] | None = None,
) -> dict[str, DAG]:
    """Build the DAGs of a policy.

    Airflow finds the DAGs without an assignment. Call it once for each policy, each time with another
    `dag_prefix`; or several times for one policy, each time with other DAGs in `only`.

    Parameters
    ----------
    config
        Absolute path of the policy file; None: the file that ``EVENLAG_CONFIG`` names. A file beside the DAG
        file, ``Path(__file__).with_name("evenlag.yaml")``, is part of the DAG bundle: where bundles have
        versions, each run uses the policy of its version.
    spark_conn_id
        Airflow connection to Spark, of type Spark Connect or Spark.
    dag_prefix
        Prefix of the DAG ids and of the names of the assets.
    pool
        Pool of the Spark tasks. It must exist: Airflow never starts a task of a pool that does not.
    max_active_tis_per_dag
        How many instances of one Spark task may run at once, over all runs of its DAG.
    queue
        Queue of all tasks.
    executor_config
        ``executor_config`` of all tasks.
    approvers
        Ids of the Airflow users who may approve plans of groups for which the policy names nobody.
    default_args
        Further default arguments of all tasks, such as ``owner``.
    tags
        Further tags of the DAGs.
    only
        Which DAGs to build, of :data:`~evenlag.airflow.dags.DAGS`; None: all.

    Returns
    -------
    dict
        The DAGs by their ids.

    Raises
    ------
    DagPolicyError
        If the policy is not valid or an argument is wrong. Airflow shows it as the file's import error.

    Examples
    --------
    >>> from evenlag.airflow import make_dags  # doctest: +SKIP
    >>> make_dags("/etc/evenlag/orders.yaml", dag_prefix="orders_", pool="evenlag")  # doctest: +SKIP
    """
    names = _check_names(only)
    _check_arguments(dag_prefix, pool, max_active_tis_per_dag, config)
    policy = read_dag_policy(None if config is None else Path(config))
    task_args = dict(default_args or {})
    if queue is not None:
        task_args["queue"] = queue
    if executor_config is not None:
        task_args["executor_config"] = dict(executor_config)
    options = DagOptions(
        dag_prefix=dag_prefix,
        spark=SparkOptions(spark_conn_id, pool, max_active_tis_per_dag),
        task_args=task_args,
        approvers=None if approvers is None else _checked_approvers(approvers),
        tags=_texts(tags),
    )
    made: dict[str, DAG] = {}
    for name in names:
        made |= {dag.dag_id: dag for dag in DAGS[name](policy, options)}
    _refuse_second(made)
    return made


def _texts(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return texts; one text is not the sequence of its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _checked_approvers(given: str | Sequence[str]) -> tuple[str, ...]:
    from evenlag.policy.setting_types import approver

    if not given:
        raise DagPolicyError("make_dags: approvers is empty: name at least one, or None for any user")
    try:
        return tuple(approver(each) for each in _texts(given))
    except ValueError as error:
        raise DagPolicyError(f"make_dags: approvers: {error}") from None


def _check_names(only: Collection[str] | None) -> tuple[str, ...]:
    if only is None:
        return tuple(DAGS)
    wanted = {only} if isinstance(only, str) else set(only)
    if unknown := sorted(wanted - DAGS.keys()):
        raise DagPolicyError(f"make_dags: only={unknown[0]!r} is no DAG; there are: {', '.join(DAGS)}")
    return tuple(name for name in DAGS if name in wanted)


def _check_arguments(
    dag_prefix: str, pool: str | None, max_active: int, config: str | os.PathLike[str] | None
) -> None:
    if not _PREFIX.fullmatch(dag_prefix):
        raise DagPolicyError(
            f"make_dags: dag_prefix={dag_prefix!r} is not usable: give at most 100 of A-Z a-z 0-9 _ . -"
        )
    if pool is not None and not pool.strip():
        raise DagPolicyError("make_dags: pool is empty: give the name of a pool, or none")
    if max_active < 1:
        raise DagPolicyError(
            f"make_dags: max_active_tis_per_dag={max_active}: no task could run; give 1 or more"
        )
    if config is not None and not Path(config).is_absolute():
        raise DagPolicyError(
            f"make_dags: config={str(config)!r} is no absolute path, and Airflow does not run in the folder "
            f"of the DAG file: Path(__file__).with_name({Path(config).name!r}) is the file beside it"
        )


def _refuse_second(made: Mapping[str, DAG]) -> None:
    """Refuse ids that this execution of the DAG file has made before: Airflow would keep the last one."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None:
        return
    before: set[str] = frame.f_globals.setdefault(_MADE, set())
    if twice := sorted(before & made.keys()):
        raise DagPolicyError(
            f"make_dags: {twice[0]} is made twice in this file: give each policy its own dag_prefix, and "
            "each call for the same policy other DAGs in `only`"
        )
    before.update(made)
