"""Evaluate gates and quality checks with Great Expectations: one suite, one expectation per entry.

An entry compares a column of observed values to a column of limits, so a suite contains no values of its own
and one validation covers all rows: a row per plan, or the one row of a snapshot. Great Expectations does not
raise when an expectation cannot be evaluated (a missing column, a wrong type): such results are detected and
fail the run.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import QualityCheckError
from evenlag.policy.gates import GATES, Comparison, Entry, Gate

if TYPE_CHECKING:
    import pandas as pd


_LIBRARY: Final = "great_expectations"
# It logs 200 lines when it is imported.
logging.getLogger(_LIBRARY).setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one expectation: its type in Great Expectations, and the keys of the rows that failed."""

    name: str
    expectation: str
    failed: frozenset[str]


def run_suite(
    name: str, entries: Sequence[Entry], frame: pd.DataFrame, *, key: str, consequence: str
) -> list[Verdict]:
    """Evaluate for all rows at once that each entry's observed values compare to its limits."""
    gx = import_great_expectations()
    # The context lives as long as the validation: a long-lived one keeps what it has validated.
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas(name).add_dataframe_asset(name)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch(
        batch_parameters={"dataframe": _comparable(frame, entries)}
    )
    # Of a single row it need not find out which one failed: that is half of its work.
    single = frame[key].iloc[0] if len(frame) == 1 else None
    is_listed: dict[str, Any] = {"result_format": "COMPLETE", "unexpected_index_column_names": [key]}
    result = batch.validate(
        gx.ExpectationSuite(name=name, expectations=[_expectation(entry) for entry in entries]),
        result_format=is_listed if single is None else {"result_format": "BOOLEAN_ONLY"},
    )
    found = {one.expectation_config.meta["name"]: one for one in result.results}
    verdicts = []
    for entry in entries:
        kind = found[entry.name].expectation_config.type
        failed = _failed_rows(entry, found[entry.name], key, single, consequence)
        verdicts.append(Verdict(entry.name, kind, frozenset(failed)))
    return verdicts


def gate_verdicts(frame: pd.DataFrame, *, gates: Sequence[Gate] = GATES) -> list[dict[str, Any]]:
    """Evaluate every gate for every row of :func:`~evenlag.planning.gate_inputs.build_gate_rows`."""
    if frame.empty:
        return []
    judged = _with_values(frame, gates)
    verdicts = run_suite("gates", gates, judged, key="plan_id", consequence="no plan passes")
    failed = {verdict.name: verdict.failed for verdict in verdicts}
    rows = []
    for plan in judged.to_dict("records"):
        for gate in gates:
            observed, allowed = plan[gate.observed], plan[gate.limit_column]
            passed = plan["plan_id"] not in failed[gate.name]
            own = {"plan_id": plan["plan_id"], "gate": gate.name}
            rows.append(own | verdict_columns(gate, observed, allowed, passed=passed))
    return rows


def verdict_columns(entry: Entry, observed: Any, allowed: Any, *, passed: bool) -> dict[str, Any]:
    """Return the columns of a verdict, as ``gate_results`` and ``quality_results`` store it."""
    return {
        "passed": passed,
        "observed": _value_text(observed),
        "allowed": _value_text(allowed),
        "message": "passed" if passed else entry.explain(observed, allowed),
    }


def import_great_expectations() -> Any:
    """Import Great Expectations without its usage reports and its log output."""
    # Its usage reports go to its vendor.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    # One of its modules sets its own logger to INFO and logs each temporary folder.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(f"{_LIBRARY}."):
            logging.getLogger(name).setLevel(logging.NOTSET)
    return gx


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
                f"{gate.name} could not be evaluated, so no plan passes: {error!r}"
            ) from error
    return frame.assign(**columns)


def _comparable(frame: pd.DataFrame, entries: Iterable[Entry]) -> pd.DataFrame:
    """Return the columns of the entries with one kind of null: None cannot be compared with a number."""
    names = {name for entry in entries for name in (entry.observed, entry.limit_column)}
    mixed = [name for name in names if name in frame and frame[name].dtype == object]
    return frame.assign(**{name: frame[name].where(frame[name].notna(), float("nan")) for name in mixed})


def _expectation(entry: Entry) -> Any:
    """The expectation of an entry: a comparison of two columns."""
    import great_expectations.expectations as gxe

    observed, limit = entry.observed, entry.limit_column
    # A comparison with an unknown value does not hold.
    ignored = "either_value_is_missing" if entry.null_passes else "neither"
    common = {"ignore_row_if": ignored, "meta": {"name": entry.name}}
    if entry.comparison is Comparison.EQUAL:
        return gxe.ExpectColumnPairValuesToBeEqual(column_A=observed, column_B=limit, **common)
    larger, smaller = (limit, observed) if entry.comparison is Comparison.AT_MOST else (observed, limit)
    return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=larger, column_B=smaller, or_equal=True, **common
    )


def _failed_rows(entry: Entry, result: Any, key: str, single: Any, consequence: str) -> list[str]:
    """Keys of the rows that failed; `single` is the key of the only row, else None."""
    raised: Mapping[str, Any] = result.exception_info or {}
    broken = raised.get("raised_exception") or any(
        isinstance(info, dict) and info.get("raised_exception") for info in raised.values()
    )
    if broken:
        raise QualityCheckError(f"{entry.name} could not be evaluated, so {consequence}: {raised}")
    if result.success:
        return []
    if single is not None:
        return [single]
    rows = result.result.get("unexpected_index_list")
    if not rows:
        raise QualityCheckError(f"{entry.name} failed without saying for which rows, so {consequence}")
    return [row[key] for row in rows]


def _value_text(value: Any) -> str | None:
    return None if value is None or value != value else str(value)  # noqa: PLR0124 - NaN
