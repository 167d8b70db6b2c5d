"""Great Expectations over one row per plan: which plans fail which gate.

The whole frame is validated in one pass; a loop over plans would cost a second each. A check that breaks
(a missing column, a wrong type) does not raise in Great Expectations: it is looked for and fails the run.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import QualityCheckError
from evenlag.publishing.gates import GATES, Gate, explain, with_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

_LIBRARY: Final = "great_expectations"
# 200 lines of its own at import, before anything has happened.
logging.getLogger(_LIBRARY).setLevel(logging.WARNING)


def import_ahead() -> None:
    """Begin to import Great Expectations, which takes seconds, beside Spark's work."""
    threading.Thread(target=import_great_expectations, name="import-ahead", daemon=True).start()


def judge_plans(frame: pd.DataFrame, *, gates: Sequence[Gate] = GATES) -> list[dict[str, Any]]:
    """Judge every plan by every gate.

    Parameters
    ----------
    frame
        One row per plan, as ``transforms.gates.build_gate_frame`` aggregates it.
    gates
        The gates; all of them by default.

    Returns
    -------
    list of dict
        One row per plan and gate: ``plan_id, gate, passed, observed, allowed, message``, in the order of the
        frame, then of the gates.

    Raises
    ------
    QualityCheckError
        When a gate could not be evaluated: nothing passes then.
    """
    if frame.empty:
        return []
    judged = with_limits(frame)
    failed = _failed_plans(judged, gates)
    rows = []
    for plan in judged.to_dict("records"):
        for gate in gates:
            observed, allowed = plan[gate.observed], plan[gate.limit_column]
            passed = plan["plan_id"] not in failed[gate.name]
            rows.append(
                {
                    "plan_id": plan["plan_id"],
                    "gate": gate.name,
                    "passed": passed,
                    "observed": _text(observed),
                    "allowed": _text(allowed),
                    "message": "passed" if passed else explain(gate, observed, allowed),
                }
            )
    return rows


def _failed_plans(frame: pd.DataFrame, gates: Sequence[Gate]) -> dict[str, set[str]]:
    gx = import_great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("plans").add_dataframe_asset("plans")
    batch = asset.add_batch_definition_whole_dataframe("all")
    suite = context.suites.add(gx.ExpectationSuite(name="gates"))
    for gate in gates:
        for expectation in _expectations(gate):
            suite.add_expectation(expectation)
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name="gates", data=batch, suite=suite)
    )
    result = definition.run(
        batch_parameters={"dataframe": frame},
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["plan_id"]},
    )
    failed: dict[str, set[str]] = {gate.name: set() for gate in gates}
    for verdict in result.results:
        name = verdict.expectation_config.meta["gate"]
        failed[name] |= _unexpected_plans(name, verdict)
    return failed


def import_great_expectations() -> Any:
    """Import and return Great Expectations, told to keep to itself."""
    # It would report its use to its makers: nothing leaves that nobody asked for.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    # A module of it sets its own logger to INFO, and so speaks of each temporary folder.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(f"{_LIBRARY}."):
            logging.getLogger(name).setLevel(logging.NOTSET)
    return gx


def _expectations(gate: Gate) -> list[Any]:
    """A gate in Great Expectations' words: a comparison of two columns, and that there is a value."""
    import great_expectations.expectations as gxe

    meta = {"gate": gate.name}
    limit, observed = gate.limit_column, gate.observed
    comparisons: dict[str, Any] = {
        "equal": lambda: gxe.ExpectColumnPairValuesToBeEqual(
            column_A=observed, column_B=limit, ignore_row_if="either_value_is_missing", meta=meta
        ),
        "at_most": lambda: gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A=limit,
            column_B=observed,
            or_equal=True,
            ignore_row_if="either_value_is_missing",
            meta=meta,
        ),
        "at_least": lambda: gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A=observed,
            column_B=limit,
            or_equal=True,
            ignore_row_if="either_value_is_missing",
            meta=meta,
        ),
    }
    found = [comparisons[gate.comparison]()]
    if not gate.null_passes:
        found.append(gxe.ExpectColumnValuesToNotBeNull(column=observed, meta=meta))
    return found


def _unexpected_plans(name: str, verdict: Any) -> set[str]:
    raised = verdict.exception_info or {}
    broken = raised.get("raised_exception") or any(
        isinstance(info, dict) and info.get("raised_exception") for info in raised.values()
    )
    if broken:
        raise QualityCheckError(f"the gate {name} could not be evaluated, so no plan passes: {raised}")
    if verdict.success:
        return set()
    rows = verdict.result.get("unexpected_index_list")
    if not rows:
        raise QualityCheckError(f"the gate {name} failed without saying which plans, so no plan passes")
    return {row["plan_id"] for row in rows}


def _text(value: Any) -> str | None:
    return None if value is None or value != value else str(value)  # noqa: PLR0124 - NaN
