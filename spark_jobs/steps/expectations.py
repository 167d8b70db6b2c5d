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
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import QualityCheckError
from evenlag.policy.gates import GATES, Comparison, Entry, Gate

if TYPE_CHECKING:
    import pandas as pd


_LIBRARY: Final = "great_expectations"
# It logs 200 lines when it is imported.
logging.getLogger(_LIBRARY).setLevel(logging.WARNING)
# The library has one current context for the process, whose cycles of several clusters are threads.
_ONE_CONTEXT: Final = threading.Lock()


def find_failures(
    entries: Sequence[Entry], frame: pd.DataFrame, *, key: str, consequence: str
) -> dict[str, frozenset[str]]:
    """Evaluate for all rows at once that each entry's observed values compare to its limits.

    Returns the keys of the rows that failed, by the name of the entry.
    """
    gx = import_great_expectations()
    values = _comparable(frame, entries)
    with _ONE_CONTEXT:
        # The context lives as long as the validation: a long-lived one keeps what it has validated.
        asset = _asset(gx.get_context(mode="ephemeral"), "rows")
        batch = asset.add_batch_definition_whole_dataframe("rows").get_batch({"dataframe": values})
        found = _validate(batch, entries, {"result_format": "BOOLEAN_ONLY"}, consequence)
        failed = [entry for entry in entries if not found[entry.name].success]
        # To find out which rows fail is most of its work.
        listed = _validate(batch, failed, _listed_by(key), consequence) if failed and len(frame) > 1 else None
    keys, only = {entry.name: frozenset[str]() for entry in entries}, frozenset(frame[key])
    for entry in failed:
        keys[entry.name] = _listed_keys(entry, listed[entry.name], key, consequence) if listed else only
    return keys


def export_context(
    folder: Path, suites: Mapping[str, tuple[Sequence[Entry], pd.DataFrame]], *, key: str
) -> None:
    """Write a file context of Great Expectations: suites, their values, checkpoints, and a result of each.

    The values of a suite are in ``data/<suite>.parquet``. No file has the path of the folder, so it may move.
    """
    context = import_great_expectations().get_context(mode="file", project_root_dir=folder)
    data = folder / "data"
    data.mkdir()
    for name, (entries, frame) in suites.items():
        values = _comparable(frame, entries)
        values.to_parquet(data / f"{name}.parquet")
        _run_checkpoint(context, name, entries, values, key)


def gate_verdicts(frame: pd.DataFrame, *, gates: Sequence[Gate] = GATES) -> list[dict[str, Any]]:
    """Evaluate every gate for every row of :func:`~evenlag.planning.gate_inputs.build_gate_rows`."""
    if frame.empty:
        return []
    judged = _with_values(frame, gates)
    failed = find_failures(gates, judged, key="plan_id", consequence="no plan passes")
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


def _asset(context: Any, name: str) -> Any:
    """Add an asset of data frames to a context."""
    context.variables.progress_bars = {"globally": False}
    return context.data_sources.add_pandas(name).add_dataframe_asset(name)


def _listed_by(key: str) -> dict[str, Any]:
    """Return the format of results that list the failing rows by a column."""
    return {"result_format": "COMPLETE", "unexpected_index_column_names": [key]}


def _validate(
    batch: Any, entries: Iterable[Entry], result_format: dict[str, Any], consequence: str
) -> dict[str, Any]:
    """Return the result of each entry's expectation by the entry's name."""
    import great_expectations as gx

    suite = gx.ExpectationSuite(name="rows", expectations=[_expectation(entry) for entry in entries])
    results = batch.validate(suite, result_format=result_format).results
    found = {one.expectation_config.meta["name"]: one for one in results}
    for name, result in found.items():
        raised: Mapping[str, Any] = result.exception_info or {}
        if raised.get("raised_exception") or any(
            isinstance(info, dict) and info.get("raised_exception") for info in raised.values()
        ):
            raise QualityCheckError(f"{name} could not be evaluated, so {consequence}: {raised}")
    return found


def _run_checkpoint(
    context: Any, name: str, entries: Iterable[Entry], values: pd.DataFrame, key: str
) -> None:
    """Add a suite, its validation of comparable values, and a checkpoint of its name, and run this."""
    import great_expectations as gx

    suite = gx.ExpectationSuite(name=name, expectations=[_expectation(entry) for entry in entries])
    data = _asset(context, name).add_batch_definition_whole_dataframe(name)
    validation = gx.ValidationDefinition(name=name, data=data, suite=context.suites.add(suite))
    definitions = [context.validation_definitions.add(validation)]
    checkpoint = gx.Checkpoint(name=name, validation_definitions=definitions, result_format=_listed_by(key))
    context.checkpoints.add(checkpoint).run({"dataframe": values})


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
    common = {
        "ignore_row_if": ignored,
        "meta": {"name": entry.name},
        "description": f"Fails when {entry.fails_when}.",
    }
    if entry.comparison is Comparison.EQUAL:
        return gxe.ExpectColumnPairValuesToBeEqual(column_A=observed, column_B=limit, **common)
    larger, smaller = (limit, observed) if entry.comparison is Comparison.AT_MOST else (observed, limit)
    return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=larger, column_B=smaller, or_equal=True, **common
    )


def _listed_keys(entry: Entry, result: Any, key: str, consequence: str) -> frozenset[str]:
    rows = result.result.get("unexpected_index_list")
    if not rows:
        raise QualityCheckError(f"{entry.name} failed without saying for which rows, so {consequence}")
    return frozenset(row[key] for row in rows)


def _value_text(value: Any) -> str | None:
    return None if value is None or value != value else str(value)  # noqa: PLR0124 - NaN
