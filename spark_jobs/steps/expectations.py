"""Evaluate the gates with Great Expectations over one row per plan.

One validation covers all plans; a loop over plans would cost a second each. Great Expectations does not raise
when an expectation cannot be evaluated (a missing column, a wrong type): such results are detected and fail
the run.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import QualityCheckError
from evenlag.policy.gate_contract import Comparison
from evenlag.policy.gates import GATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from evenlag.policy.gate_contract import Gate

_LIBRARY: Final = "great_expectations"
# In the order in which a cycle needs them.
_NEEDED: Final = ("evenlag.kafka.cluster_reader", "pyarrow.compute", "deltalake", "pandas")
# It logs 200 lines when it is imported.
logging.getLogger(_LIBRARY).setLevel(logging.WARNING)


def import_ahead() -> None:
    """Start to import what a cycle needs, Great Expectations last, in parallel with Spark's start or work.

    Great Expectations takes seconds to import.
    """
    threading.Thread(target=_import_all, name="import-ahead", daemon=True).start()


def _import_all() -> None:
    for name in _NEEDED:
        importlib.import_module(name)
    import_great_expectations()


def judge_plans(frame: pd.DataFrame, *, gates: Sequence[Gate] = GATES) -> list[dict[str, Any]]:
    """Evaluate every gate for every plan.

    Parameters
    ----------
    frame
        One row per plan, as :func:`evenlag.planning.gate_inputs.build_gate_rows` builds it.
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
        When a gate could not be evaluated. No plan passes then.
    """
    if frame.empty:
        return []
    judged = _with_values(frame, gates)
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
                    "message": "passed" if passed else gate.explain(observed, allowed),
                }
            )
    return rows


def _with_values(frame: pd.DataFrame, gates: Sequence[Gate]) -> pd.DataFrame:
    """Add each gate's observed values and limits."""
    # Groups of one rule have the same text of settings: each text is parsed once.
    parsed = {text: json.loads(text) for text in frame["settings"].unique()}
    settings = [parsed[text] for text in frame["settings"]]
    columns: dict[str, Any] = {}
    for gate in gates:
        try:
            inputs = {name: frame[name] for name in gate.all_inputs}
            columns[gate.observed] = gate.observe(inputs)
            plans = (dict(zip(inputs, values, strict=True)) for values in zip(*inputs.values(), strict=True))
            columns[gate.limit_column] = [
                gate.limit.allowed(*given) for given in zip(settings, plans, strict=True)
            ]
        except Exception as error:
            raise QualityCheckError(
                f"the gate {gate.name} could not be evaluated, so no plan passes: {error!r}"
            ) from error
    return frame.assign(**columns)


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
    """Import Great Expectations without its usage reports and its log output.

    Returns
    -------
    module
        ``great_expectations``.
    """
    # Its usage reports go to its vendor.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    # One of its modules sets its own logger to INFO and logs each temporary folder.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(f"{_LIBRARY}."):
            logging.getLogger(name).setLevel(logging.NOTSET)
    return gx


def _expectations(gate: Gate) -> list[Any]:
    """The expectations of a gate: a comparison of two columns, and that the value is known."""
    import great_expectations.expectations as gxe

    meta = {"gate": gate.name}
    limit, observed = gate.limit_column, gate.observed
    comparisons: dict[Comparison, Any] = {
        Comparison.EQUAL: lambda: gxe.ExpectColumnPairValuesToBeEqual(
            column_A=observed, column_B=limit, ignore_row_if="either_value_is_missing", meta=meta
        ),
        Comparison.AT_MOST: lambda: gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A=limit,
            column_B=observed,
            or_equal=True,
            ignore_row_if="either_value_is_missing",
            meta=meta,
        ),
        Comparison.AT_LEAST: lambda: gxe.ExpectColumnPairValuesAToBeGreaterThanB(
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
