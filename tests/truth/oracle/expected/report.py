"""`evenlag report`: the page's numbers, times and charts, from the rows of each table."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.expected.change import read_change
from tests.truth.oracle.expected.compare import (
    MEASURED_SHOWN,
    OBSERVED,
    OBSERVED_SHOWN,
    between,
    model,
    sum_up,
)
from tests.truth.oracle.expected.lag import (
    at_least,
    bounded,
    bounded_time,
    count_unknown,
    group_rows,
    heaviest_first,
    member_rows,
    times,
    totals,
)
from tests.truth.oracle.expected.plans import SHORT_ID, at_least_of
from tests.truth.oracle.expected.timeline import read_bars, read_marks
from tests.truth.oracle.expected.verdict import drain_tile, expected_verdict
from tests.truth.oracle.forms import UNKNOWN, as_on_page, duration, moment, number, page_moment, percent
from tests.truth.oracle.lake_rows import by, counted, known_sum
from tests.truth.oracle.page import bars, parse_page, pictures
from tests.truth.oracle.report_period import member_names, read_period

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.page import ReportPage
    from tests.truth.oracle.report_period import Period
    from tests.truth.oracle.session import Session

COMMAND: Final = "report"
_MAX_ROWS: Final = 400
_MAX_PARTITIONS: Final = 40
_MAX_DRAWN_MEMBERS: Final = 16
_DIGITS: Final = 3


def check_report(session: Session) -> None:
    """Compare the pages of each group, for the complete time and for parts of it."""
    rows = session.rows
    slots = [row["slot"] for row in rows.snapshots]
    hours = (slots[-1] - slots[0]) / timedelta(hours=1) + 1
    ends = sorted(row["finished_at"] for row in rows.snapshots)
    middle = ends[len(ends) * 2 // 3] + timedelta(microseconds=1)
    planned = sorted({row["group_id"] for row in rows.rows("plans")})[:2]
    for group_id in rows.groups:
        check_page(session, group_id, hours, None)
        if group_id in planned:
            check_page(session, group_id, hours, middle)
    groups = group_rows(rows, rows.newest["snapshot_id"])
    if groups:
        part = max(0.011, (slots[-1] - slots[0]) / timedelta(hours=1) / 3)
        furthest = max(groups, key=lambda row: row["lag_records"] or 0)
        check_page(session, furthest["group_id"], part, None, is_default=True)


def check_page(
    session: Session, group_id: str, hours: float, end: datetime | None, *, is_default: bool = False
) -> None:
    """Compare one page; `is_default`: without the group's name, as it has the largest lag."""
    period = read_period(session.rows, group_id, hours, end)
    path = session.folder / "report.html"
    path.unlink(missing_ok=True)
    arguments = [*([] if is_default else [group_id]), "--file", str(path), "--hours", f"{hours:.9f}"]
    arguments += ["--to", end.isoformat()] if end else []
    if period is None or not period.of_group("lag"):
        session.fails(COMMAND, *arguments, exit_code=4)
        return
    shown = session.ask(COMMAND, *arguments)
    if shown is None:
        return
    html = path.read_text(encoding="utf-8")
    name = f"{group_id} up to {end}" if end else group_id
    session.same(COMMAND, f"{name}: group", shown["group_id"], group_id)
    compare = _Comparison(session, period, parse_page(html), name)
    compare.head(shown)
    compare.verdict(shown)
    compare.headline()
    compare.plans()
    compare.gates()
    compare.decisions()
    compare.lag_over_time()
    compare.policies()
    compare.change(html)
    compare.partitions()
    compare.timeline(html)


class _Comparison:
    """Compares the sections of one page."""

    def __init__(self, session: Session, period: Period, page: ReportPage, name: str) -> None:
        self._session, self._period, self._page, self._name = session, period, page, name

    def _same(self, value: str, shown: Any, expected: Any) -> None:
        self._session.same(COMMAND, f"{self._name}: {value}", shown, as_on_page(expected))

    def _table(self, caption: str) -> list[list[str]]:
        found = [table for name, table in self._page.tables.items() if name.startswith(caption)]
        return found[0].rows if found else []

    def head(self, reported: Row) -> None:
        """Compare the period, and displayed with machine-readable times."""
        period = self._period
        num_snapshots = len({row["snapshot_id"] for row in period.of_group("lag")})
        since, until = period.snapshots[0]["slot"], period.newest["slot"]
        self._same("period", [reported["since"], reported["until"]], [since, until])
        self._same("snapshots", reported["num_snapshots"], num_snapshots)
        # A browser collapses whitespace.
        title = " ".join(f"{period.group_id} on {period.rows.cluster}".split())
        self._same("title", self._page.title, title)
        noun = "snapshot" if num_snapshots == 1 else "snapshots"
        line = (
            f"Slots {page_moment(since)} to {page_moment(until)}, {num_snapshots:,} {noun}; "
            f"the last one ended at {page_moment(period.finished_at)}."
        )
        self._same("line below the title", self._page.period[: len(line)], line)
        shown = [text for _, text in self._page.times]
        self._same("moments", shown, [machine[:19].replace("T", " ") for machine, _ in self._page.times])

    def verdict(self, shown: Row) -> None:
        """Compare the first line: what happened to which plan, and the lag of the most loaded member."""
        expected = expected_verdict(self._period)
        for text in expected.parts:
            self._same(f"verdict has {text!r}", text in self._page.verdict, True)
        self._same("color of the verdict", self._page.verdict_kind, expected.kind)
        self._same("verdict of the command", " ".join(shown["verdict"].split()), self._page.verdict)

    def headline(self) -> None:
        """Compare the large numbers."""
        period, shown = self._period, self._page.headline
        snapshot_id = period.newest["snapshot_id"]
        now = totals(member_rows(period.rows, snapshot_id, period.group_id, counted))
        lag = period.rows.lag_of(snapshot_id, period.group_id)
        if not lag:
            now = dict.fromkeys(now, 0) | {"lag_records": None, "max_member_lag_records": None}
        elif not counted(lag):
            now |= {"lag_records": 0, "max_member_lag_records": None}
        unknown = now["num_unknown_partitions"]
        expected = [at_least(number(now[n]), unknown) for n in ("lag_records", "max_member_lag_records")]
        behind = bounded_time(times(counted(lag)))
        if behind != "-":
            expected.append(behind)
        drain = drain_tile(period)
        if drain is not None:
            expected.append(drain)
        expected.append(f"{now['num_members']:,} / {now['num_partitions']:,}")
        left = [row for row in lag if row["status"] == "NOT_SUBSCRIBED"]
        if left and known_sum(left) != 0:
            expected.append(number(known_sum(left)))
        rebalances = [mark for mark in read_marks(period) if mark[1] == "rebalance"]
        if read_bars(period):
            expected.append(number(len(rebalances)))
        since = period.snapshots[0]["slot"]
        events = Counter(event["event"] for event in period.events if event["at"] >= since)
        if events["PUBLISHED"] or events["APPLIED"]:
            expected.append(f"{events['PUBLISHED']:,} / {events['APPLIED']:,}")
        self._same("headline", [value for value, _ in shown], expected)

    def plans(self) -> None:
        """Compare the table of plans."""
        rows: list[list[Any]] = []
        for plan, num_equal, first in _without_repeats(self._period.plans)[:_MAX_ROWS]:
            planned = (plan["num_unknown_lags"], plan["num_partitions"])
            actual = (plan["num_unknown_partitions_actual"], plan["num_partitions_actual"])
            lags = (
                (plan["max_member_lag_before_records"], *planned),
                (plan["max_member_lag_predicted_records"], *planned),
                (plan["max_member_lag_actual_records"], *actual),
            )
            rows.append(
                [
                    plan["plan_id"][:SHORT_ID],
                    page_moment(plan["slot"])
                    + (f" and {num_equal - 1:,} more since {page_moment(first)}" if num_equal > 1 else ""),
                    plan["status"] or "-",
                    plan["assignor"],
                    plan["mode"],
                    number(plan["moves"]),
                    _across_racks(plan),
                    *(at_least_of(*lag) for lag in lags),
                    " ".join((plan["reason"] or "").split()),
                ]
            )
        self._same("plans", self._table("Plans, newest first"), rows)

    def gates(self) -> None:
        """Compare the tables of gates that refused a plan and of the others, in any order."""
        refusing, passed = {}, {}
        for gate, rows in by(self._period.of_group("gate_results"), "gate").items():
            refused = [row for row in rows if not row["passed"]]
            if refused:
                last = max(refused, key=lambda row: row["snapshot_id"])["message"]
                refusing[gate] = [number(len(rows)), number(len(refused)), last]
            else:
                passed[gate] = [number(len(rows))]
        for caption, expected in (("Gates that refused", refusing), ("Gates that passed", passed)):
            shown = {row[0]: row[1:] for row in self._table(caption)}
            self._same(f"gates: {caption}", shown, expected)

    def decisions(self) -> None:
        """Compare the table of decisions."""
        found = []
        for decision, rows in by(self._period.of_group("decisions"), "decision").items():
            last = max(rows, key=lambda row: row["slot"])
            cells = [decision, number(len(rows)), page_moment(last["slot"]), last["reason"] or ""]
            found.append((-len(rows), decision, cells))
        expected = [cells for _, _, cells in sorted(found)]
        self._same("decisions", self._table("Planning decisions by"), expected)

    def lag_over_time(self) -> None:
        """Compare the lag of the group and of its most loaded member, by the time it was read."""
        expected = []
        for snapshot in sorted(self._period.snapshots, key=lambda row: row["end_read_at"]):
            lag = self._period.rows.lag_of(snapshot["snapshot_id"], self._period.group_id)
            if not lag:
                continue
            lag = counted(lag)
            owned = by((row for row in lag if row["owner_member_id"] is not None), "owner_member_id")
            known = [total for rows in owned.values() if (total := known_sum(rows)) is not None]
            unknown = count_unknown(lag)
            sums = (known_sum(lag) if lag else 0, max(known, default=None))
            shown = [at_least(number(value), unknown) for value in sums]
            expected.append([page_moment(snapshot["end_read_at"]), *shown, number(unknown)])
        self._same("lag over time", self._table("Measured lag"), expected[:_MAX_ROWS])

    def _replays(self) -> list[Row]:
        """Replays of the period's days, except those that continue after a requested end."""
        end = self._period.end
        rows = self._period.in_days("replays")
        return [row for row in rows if end is None or row["period_end"] <= end]

    def _replayed(self) -> list[Row]:
        return sum_up(self._session, self._replays(), "waiting_p99_ms")

    def policies(self) -> None:
        """Compare the results of the candidates, and the error of the model."""
        rows = self._replayed()
        self._same("policies", self._table("Replayed over"), _policy_cells(rows))
        error = model(self._replays())
        if error is not None:
            median, p95 = (
                f"{percent(error[f'{name}_error'])} ({number(error[f'{name}_error_records'])} records)"
                for name in ("median", "p95")
            )
            message = f"by {median} at the median and {p95} at the 95th"
            self._same("error of the model", any(message in text for text in self._page.captions), True)

    def partitions(self) -> None:
        """Compare the table of the partitions in the last snapshot."""
        period, rows = self._period, self._period.rows
        names = member_names(period)
        kept = rows.where("members", snapshot_id=period.newest["snapshot_id"], group_id=period.group_id)
        hosts = {row["member_id"]: row["client_host"] for row in kept}
        of_first = rows.lag_of(period.snapshots[0]["snapshot_id"], period.group_id)
        first = {(row["topic"], row["partition"]): row["lag_records"] for row in of_first}
        in_order = sorted(rows.lag_of(period.newest["snapshot_id"], period.group_id), key=heaviest_first)
        expected = []
        for row in in_order[:_MAX_ROWS]:
            owner = row["owner_member_id"]
            nobody = "not known" if row.get("owner_problem") else "nobody"
            expected.append(
                [
                    f"{row['topic']}-{row['partition']}",
                    names.get(owner, owner) if owner else nobody,
                    hosts.get(owner) or "",
                    row["status"] or "",
                    number(row["committed_offset"]),
                    number(row["end_offset"]),
                    bounded(number(row["lag_records"]), row.get("lag_bound")),
                    number(first.get((row["topic"], row["partition"]))),
                    number(row["arrival_rate_records_per_s"], digits=1),
                    number(row["consume_rate_records_per_s"], digits=1),
                    bounded_time(row),
                ]
            )
        self._same("partitions", self._table("In the last snapshot"), expected)

    def change(self, html: str) -> None:
        """Compare the lag of each member around a plan: the table, the caption's times, and the bars."""
        change = read_change(self._period)
        shown = self._table("Lag of each member")
        if change is None:
            self._same("change", shown, [])
            return
        self._same("change", shown, change.cells())
        caption = self._page.captions[0]
        for at in change.read_at:
            self._same("read at", f"read at {moment(at)}" in caption.replace("Read", "read"), True)
        if change.plan is not None:
            plan = change.plan
            message = f"Plan {plan['plan_id'][:SHORT_ID]} ({plan['status']}) moves {number(plan['moves'])} "
            self._same("caption of the change", caption[: len(message)], message)
        drawn = bars(pictures(html)[0])
        names = ("--before", "--predicted", "--after")
        lengths = [bar.right - bar.left for name in names for bar in drawn if bar.colour == name]
        members = change.members[:_MAX_DRAWN_MEMBERS]
        lags = [part.get(name, (None, 0))[0] or 0 for part in change.parts for name in members]
        if change.plan is not None and len(change.parts) < len(names):
            lags += [0] * len(members)
        self._same("bars of the change", _shares(lengths), _shares(lags))

    def timeline(self, html: str) -> None:
        """Compare partition ownership over time: the table, the marks, and the bars."""
        expected = read_bars(self._period)
        counts = Counter(bar.partition for bar in expected)
        chosen = sorted(counts, key=lambda name: (-counts[name], name))[:_MAX_PARTITIONS]
        kept = [bar for bar in expected if bar.partition in chosen]
        cells = [bar.cells() for bar in kept]
        self._same("timeline", self._table("Partition ownership"), cells[:_MAX_ROWS])
        marks = read_marks(self._period) if kept else []
        shown = self._table("Rebalances and hints")
        self._same("marks", sorted(shown), sorted(marks)[:_MAX_ROWS])
        self._same(
            "order of the marks", [row[0] for row in shown], sorted(row[0] for row in marks)[:_MAX_ROWS]
        )
        if not kept:
            return
        drawn = [
            bar for bar in bars(pictures(html)[-2]) if bar.colour.startswith("--member-") and not bar.is_pale
        ]
        owned = [bar for bar in kept if not bar.what.startswith("(")]
        lefts, starts = [bar.left for bar in drawn], [bar.start.timestamp() for bar in owned]
        self._same("bars begin", _places(lefts), _places(starts))


def _without_repeats(plans: Iterable[Row]) -> list[tuple[Row, int, datetime]]:
    """Return the plans that have a row, the number of equal ones rejected in turn, and their first slot."""
    found: list[tuple[Row, int, datetime]] = []
    for plan in plans:
        last = found[-1][0] if found else {}
        same = all(last.get(name) == plan[name] for name in ("status", "assignor", "mode", "reason"))
        if same and plan["status"] == "REJECTED":
            found[-1] = (last, found[-1][1] + 1, plan["slot"])
        else:
            found.append((plan, 1, plan["slot"]))
    return found


def _across_racks(plan: Row) -> str:
    """Shares of a plan's load across racks; lakes from before racks have no such columns."""
    before, after = plan.get("across_racks_before"), plan.get("across_racks_after")
    return "" if before is None or after is None else f"{100 * before:.1f} % → {100 * after:.1f} %"


def _shares(values: Sequence[float]) -> list[float]:
    """Values relative to the largest one."""
    largest = max(values, default=0)
    return [round(value / largest, _DIGITS) if largest else 0.0 for value in values]


def _places(values: Sequence[float]) -> list[float]:
    """Positions of the values between the first and the last one, without duplicates."""
    first, last = min(values, default=0), max(values, default=0)
    width = (last - first) or 1
    return sorted({round((value - first) / width, _DIGITS - 1) for value in values})


def _policy_cells(rows: Sequence[Row]) -> list[list[str]]:
    found = []
    for row in rows:
        days = "day" if row["group_days"] == 1 else "days"
        undrained = f"not on {row['not_drained']} of {row['group_days']} {days}"
        parts = [duration(row["drain_time_ms"])] if row["drain_time_ms"] is not None else []
        parts += [undrained] if row["not_drained"] or not parts else []
        name = OBSERVED_SHOWN if row["policy"] == OBSERVED else row["policy"]
        unknown = row["unknown_ages"] + row["unknown_partitions"]
        found.append(
            [
                f"{name} best" if row["is_best"] else name,
                at_least(duration(row["waiting_p95_ms"]), unknown),
                at_least(duration(row["waiting_p99_ms"]), unknown),
                percent(row["above_30s"]),
                at_least(duration(row["max_time_lag_ms"]), unknown),
                at_least(number(row["mean_lag_records"]), row["unknown_partitions"]),
                between(row, "peak_member_lag_records"),
                ", ".join(parts),
                number(row["moves"]),
                number(row["rebalances"]),
                percent(row["optimality_gap"]),
            ]
        )
    return found + [_measured_cells(row) for row in rows if row.get("measured_max_lag_records") is not None]


def _measured_cells(row: Row) -> list[str]:
    return [
        MEASURED_SHOWN,
        *[UNKNOWN] * 3,
        at_least(duration(row["measured_max_time_lag_ms"]), row["unknown_time_lags"]),
        at_least(number(row["measured_mean_lag_records"]), row["measured_unknown_share"]),
        *[UNKNOWN] * 5,
    ]
