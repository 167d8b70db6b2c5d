"""Rows of ``forecasts``: the states of :mod:`evenlag.lag.forecast` after a snapshot, and the forecast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import LagStatus
from evenlag.lag.arrays import (
    Floats,
    Int64s,
    Points,
    as_column,
    as_lists,
    as_structs,
    codes,
    find_places,
    floats,
    last_in_lists,
    seconds,
)
from evenlag.lag.forecast import ERROR_BINS, MODELS, Errors, Rates, Seen, advance, forecast_rates
from evenlag.lag.hourly_rates import hours_of, partition_keys
from evenlag.lag.prediction_rows import LAG_COLUMNS as PREDICTION_COLUMNS
from evenlag.lag.prediction_rows import prediction_columns
from evenlag.lag.speed_rows import explode, group_partition_keys, with_owner_speeds
from evenlag.lake.arrow_schema import arrow_schema, with_head
from evenlag.lake.tables import FORECASTS, SPEEDS

LAG_COLUMNS: Final = (
    *("group_id", "topic_id", "topic", "partition", "status"),
    *("end_offset", "read_at", "arrival_rate_records_per_s"),
    *PREDICTION_COLUMNS,
)
"""Columns of ``lag`` that :func:`build_forecasts` needs."""
POINT_COLUMNS: Final = ("topic_id", "topic", "partition", "interval_points")
"""Columns of ``offsets`` that it needs."""
# Columns of a partition, and the fields of its state.
_RATES: Final = {
    "read_at": "at_s",
    "end_offset": "end",
    "last_records_per_s": "last",
    "smoothed_records_per_s": "smoothed",
    "anchor_read_at": "anchor_at_s",
    "anchor_end_offset": "anchor_end",
    "anchor_last_records_per_s": "anchor_last",
    "anchor_smoothed_records_per_s": "anchor_smoothed",
}
_PARTITION: Final = ("topic_id", "topic", "partition")
_ERRORS: Final = ("interval_errors", "horizon_errors")


def build_forecasts(
    lag: pa.Table,
    offsets: pa.Table,
    previous: pa.Table,
    hourly: pa.Table,
    marker: Mapping[str, Any],
    horizon_of: Callable[[str], int],
    speeds: pa.Table | None = None,
) -> pa.Table:
    """Build the rows of ``forecasts`` of some groups of a snapshot.

    lag: All rows of the groups, with :data:`LAG_COLUMNS`. offsets: Rows with ``interval_points``.
    previous: Their rows of the newest snapshot before it that has any. hourly: Rows of ``hourly_rates``.
    horizon_of: Seconds by group id. speeds: Their rows of this snapshot; None: no speed is known.
    """
    lag = lag.filter(pc.not_equal(lag["status"], LagStatus.NOT_SUBSCRIBED)).sort_by(
        [(name, "ascending") for name in ("group_id", "topic", "partition")]
    )
    groups: list[str] = pc.unique(lag["group_id"]).to_pylist()
    group = codes(lag["group_id"], groups)
    before = explode(previous, "partitions")
    place = find_places(*group_partition_keys(lag, before))
    rates = _rates_of(before).take(place)
    of_group = codes(pa.array(groups, pa.string()), previous["group_id"].to_pylist())
    errors = _errors_of(previous).take(of_group)
    position = floats(lag["end_offset"]) - floats(lag["lag_records"])
    moved = position - floats(before["position"].take(pa.array(place, mask=place < 0)))
    read_at_s = seconds(lag["read_at"])
    apart_s = read_at_s - rates.at_s
    consumed = np.divide(moved, apart_s, out=np.full(len(lag), np.nan), where=apart_s > 0)
    known = floats(lag["arrival_rate_records_per_s"])
    rate = np.where(np.isnan(rates.last), known, _recent_rates(lag, offsets))
    horizon_s = np.array([horizon_of(group_id) for group_id in groups], dtype=np.float64)
    seen = Seen(group, read_at_s, floats(lag["end_offset"]), rate, horizon_s)
    hours = hours_of(lag, hourly)
    rates, errors = advance(rates, errors, seen, hours)
    mean = forecast_rates(rates, errors, seen, hours)
    measured = arrow_schema(SPEEDS).empty_table() if speeds is None else speeds
    predictions = prediction_columns(
        with_owner_speeds(lag, measured),
        previous.take(pa.array(of_group, mask=of_group < 0)),
        seen,
        mean,
        consumed,
        marker["end_read_at"].timestamp(),
    )
    return _rows(lag, groups, seen, rates, errors, mean, position, predictions, marker)


def _recent_rates(lag: pa.Table, offsets: pa.Table) -> Floats:
    """The rate since the newest point of each row's interval; NaN without points."""
    of_lag, of_offsets = partition_keys(lag, offsets)
    points = Points.of(offsets["interval_points"].combine_chunks())
    last = last_in_lists(np.ones(len(points.parent), dtype=np.bool_), points.parent, points.num_lists)
    place = find_places(of_lag, of_offsets)
    newest = np.where(place >= 0, last[place] if len(last) else -1, -1)
    at, offset = (
        np.where(newest >= 0, values[newest] if len(values) else 0, np.nan)
        for values in (points.at_us / 1e6, points.offset.astype(np.float64))
    )
    passed_s, came = seconds(lag["read_at"]) - at, floats(lag["end_offset"]) - offset
    is_known = (passed_s > 0) & (came >= 0)
    return np.asarray(np.divide(came, passed_s, out=np.full(len(came), np.nan), where=is_known))


def with_forecasts(lag: pa.Table, forecasts: pa.Table) -> pa.Table:
    """Add ``forecast_records_per_s`` to rows of ``lag``; null where there is none."""
    before = explode(forecasts, "partitions")
    place = find_places(*group_partition_keys(lag, before))
    mean = before["forecast_records_per_s"].combine_chunks().take(pa.array(place, mask=place < 0))
    return lag.append_column("forecast_records_per_s", mean)


def expected_ends(forecasts: pa.Table) -> pa.Table:
    """Return the partitions of forecasts once each: where they ended, and their last rates."""
    each = explode(forecasts, "partitions")
    (key,) = partition_keys(each)
    _, first = np.unique(key, return_index=True)
    return each.select([*_PARTITION, "read_at", "end_offset", "last_records_per_s"]).take(pa.array(first))


def _rates_of(before: pa.Table) -> Rates:
    return Rates(
        *(seconds(before[name]) if name.endswith("read_at") else floats(before[name]) for name in _RATES)
    )


def _errors_of(previous: pa.Table) -> Errors:
    """The states of groups; a state of another length, which another version wrote, begins new."""
    num_groups = previous.num_rows
    new = Errors.none(num_groups)
    widths = {"tried_s": len(MODELS), "common_errors": ERROR_BINS, "own_errors": ERROR_BINS}
    lists = {name: _matrix(previous[name], width) for name, width in widths.items()}
    for row, name in enumerate(_ERRORS):
        column = previous[name].combine_chunks()
        for target, field in ((new.loss, "records"), (new.base, "of_last_rate")):
            values = pc.struct_field(pc.list_flatten(column), field)
            target[:, row] = _matrix(as_lists(values, _lengths(column)), len(MODELS))
    model = codes(previous["model"], [each.value for each in MODELS])
    is_of_horizon = pc.fill_null(previous["is_of_horizon"], False).to_numpy()
    return Errors(
        model,
        new.loss,
        new.base,
        lists["tried_s"],
        lists["common_errors"],
        lists["own_errors"],
        np.array(is_of_horizon, dtype=np.bool_),
    )


def _lengths(column: Any) -> Int64s:
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False), np.int64)


def _matrix(column: Any, width: int) -> Floats:
    """Lists of one length as rows; zeros for others."""
    lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    is_whole = _lengths(lists) == width
    found = np.zeros((len(lists), width))
    whole = lists.filter(pa.array(is_whole))
    found[is_whole] = np.nan_to_num(floats(pc.list_flatten(whole))).reshape(-1, width)
    return found


def _rows(
    lag: pa.Table,
    groups: list[str],
    seen: Seen,
    rates: Rates,
    errors: Errors,
    mean: Floats,
    position: Floats,
    predictions: Mapping[str, pa.Array],
    marker: Mapping[str, Any],
) -> pa.Table:
    schema = arrow_schema(FORECASTS)
    start = np.searchsorted(seen.group, np.arange(len(groups) + 1))
    kind = schema.field("partitions").type.value_type
    parts = {name: lag[name].combine_chunks() for name in _PARTITION}
    parts |= {name: as_column(getattr(rates, field), kind.field(name).type) for name, field in _RATES.items()}
    parts["position"] = as_column(position, kind.field("position").type)
    parts["forecast_records_per_s"] = _list(mean)
    columns = {
        "group_id": pa.array(groups, pa.string()),
        "horizon_s": pa.array(seen.horizon_s.astype(np.int32)),
        "model": pa.array([each.value for each in MODELS]).take(pa.array(errors.model)),
        "tried_s": _list(errors.tried_s),
        "common_errors": _list(errors.common),
        "own_errors": _list(errors.own),
        "is_of_horizon": pa.array(errors.is_of_horizon),
        "partitions": pa.ListArray.from_arrays(pa.array(start, pa.int32()), as_structs(parts, kind)),
        **predictions,
    }
    for row, name in enumerate(_ERRORS):
        fields = schema.field(name).type.value_type
        both = (errors.loss[:, row].ravel(), errors.base[:, row].ravel())
        pairs = pa.StructArray.from_arrays([pa.array(values) for values in both], fields=list(fields))
        columns[name] = _list(errors.loss[:, row], pairs)
    return with_head(pa.table(columns), FORECASTS, {**marker, "read_at": marker["end_read_at"]})


def _list(values: Floats, flat: pa.Array | None = None) -> pa.ListArray:
    """Rows of numbers, or of what `flat` has instead of them."""
    each = pa.array(values.ravel()) if flat is None else flat
    return as_lists(each, np.full(len(values), values.shape[1]))
