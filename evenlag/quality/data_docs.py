"""The Data Docs: static pages of validation results, with observed values and limits.

They replace Great Expectations' own pages, which load scripts, styles and a tracking pixel from the web and
do not escape the names that they show. These load nothing, and every name is escaped.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from evenlag.html.markup import Html, badge, numbers, page, table, text, when
from evenlag.policy.gates import Comparison, Entry

_SIGNS: Final = {Comparison.EQUAL: "=", Comparison.AT_MOST: "≤", Comparison.AT_LEAST: "≥"}
_SAFE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
_MAX_DISTINCT: Final = 3
_RUN_FOLDER: Final = "runs"

# Gates and checks by suite.
Suites = Mapping[str, Sequence[Entry]]
# The recorded result of one expectation for one plan or snapshot; value and limit are null if unknown.
Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanResults:
    """The results of one plan, by gate."""

    plan_id: str
    group_id: str
    results: Mapping[str, Result]

    @property
    def passed(self) -> bool:
        """Whether the plan passed all gates."""
        return all(result["passed"] for result in self.results.values())


@dataclass(frozen=True, slots=True)
class Run:
    """What one run evaluated: `plans` may be a part of all, `checks` are empty if the snapshot has none."""

    snapshot_id: str
    slot: datetime
    plans: Sequence[PlanResults] = ()
    num_plans: int = 0
    checks: Mapping[str, Result] = field(default_factory=dict)

    @property
    def num_rejected(self) -> int:
        """Number of plans that failed a gate."""
        return sum(not plan.passed for plan in self.plans)

    @property
    def failed_checks(self) -> list[str]:
        """Names of the checks that failed."""
        return [name for name, result in self.checks.items() if not result["passed"]]

    @property
    def failed_gates(self) -> list[str]:
        """Names of the gates that a plan failed."""
        names = {name for plan in self.plans for name, result in plan.results.items() if not result["passed"]}
        return sorted(names)


def render_pages(cluster: str, runs: Sequence[Run], suites: Suites, built_at: datetime) -> dict[str, str]:
    """Render all pages of a cluster: HTML by the path of the page, ``index.html`` and one per run."""
    names = {run.snapshot_id: _page_name(run.snapshot_id, number) for number, run in enumerate(runs)}
    pages = {"index.html": _index(cluster, runs, names, suites, built_at)}
    for run in runs:
        pages[f"{_RUN_FOLDER}/{names[run.snapshot_id]}"] = _run_page(cluster, run, suites)
    return pages


def _page_name(snapshot_id: str, number: int) -> str:
    """A file name; one that the lake's text does not decide if it is no id of ours."""
    return f"{snapshot_id if _SAFE_NAME.fullmatch(snapshot_id) else f'run-{number}'}.html"


def _index(
    cluster: str,
    runs: Sequence[Run],
    names: Mapping[str, str],
    suites: Suites,
    built_at: datetime,
) -> str:
    checked = [run for run in runs if run.checks]
    rows = [
        (
            _link(f"{_RUN_FOLDER}/{names[run.snapshot_id]}", run),
            run.num_plans,
            run.num_rejected,
            _failures(run.failed_gates, is_known=bool(run.plans)),
            _failures(run.failed_checks, is_known=bool(run.checks)),
        )
        for run in reversed(runs)
    ]
    body = [
        f"<h1>Data Docs of {text(cluster)}</h1>",
        f'<p class="soft">Validation results of the last {len(runs)} runs. Built {when(built_at)} UTC.</p>',
        numbers(
            [
                (f"{sum(run.num_plans for run in runs):,}", "plans"),
                (f"{sum(run.num_rejected for run in runs):,}", "rejected by a gate"),
                (f"{len(checked):,}", "snapshots checked"),
                (f"{sum(bool(run.failed_checks) for run in checked):,}", "snapshots that failed a check"),
            ]
        ),
        "<h2>Runs</h2>",
        table(("slot (UTC)", "plans#", "rejected#", "failed gates", "failed checks"), rows)
        if rows
        else "<p>No run has evaluated anything yet.</p>",
    ]
    for name, entries in suites.items():
        body += [f"<h2>Suite {text(name)}</h2>", _suite_table(entries)]
    return page(f"Data Docs of {cluster}", _main(body))


def _suite_table(entries: Iterable[Entry]) -> Html:
    rows = [
        (
            one.name,
            Html(f'<code class="whole">{text(one.observed)} {_SIGNS[one.comparison]} limit</code>'),
            _prose(f"{one.table}: {one.fails_when}" if one.table else one.fails_when),
        )
        for one in entries
    ]
    return table(("expectation", "condition", "fails when"), rows)


def _run_page(cluster: str, run: Run, suites: Suites) -> str:
    body = [
        '<nav><ul><li><a href="../index.html">All runs</a></li></ul></nav>',
        f"<h1>{text(cluster)}, {when(run.slot)} UTC</h1>",
        f'<p class="soft">Snapshot <code>{text(run.snapshot_id)}</code></p>',
        numbers(
            [
                (f"{run.num_plans:,}", "plans"),
                (f"{run.num_rejected:,}", "rejected by a gate"),
                (f"{len(run.checks):,}", "checks of the snapshot"),
                (f"{len(run.failed_checks):,}", "failed checks"),
            ]
        ),
    ]
    for name, entries in suites.items():
        body.append(f"<h2>Suite {text(name)}</h2>")
        if entries and not entries[0].table:
            body += _gate_tables(run, entries)
        else:
            body.append(_check_table(run, entries))
    return page(f"{cluster}, {run.slot:%Y-%m-%d %H:%M} UTC", _main(body))


def _gate_tables(run: Run, gates: Sequence[Entry]) -> list[str]:
    if not run.plans:
        return ["<p>The run made no plan.</p>"]
    rows = []
    for gate in gates:
        results = [plan.results[gate.name] for plan in run.plans if gate.name in plan.results]
        num_failed = sum(not result["passed"] for result in results)
        rows.append(
            (
                gate.name,
                _verdict(num_failed == 0 if results else None),
                f"{num_failed:,} of {len(results):,}",
                _range(result["observed"] for result in results),
                _SIGNS[gate.comparison],
                _range(result["allowed"] for result in results),
            )
        )
    shown = "" if len(run.plans) == run.num_plans else f", {len(run.plans):,} of {run.num_plans:,}"
    return [
        table(("gate", "verdict", "failed#", "observed", "", "limit"), rows),
        f"<h3>Plans{shown}</h3>",
        table(
            ("group", "plan", "verdict", *(f"{gate.name} {_SIGNS[gate.comparison]}" for gate in gates)),
            [_plan_row(plan, gates) for plan in run.plans],
            caption="Observed value and limit of each gate",
        ),
        *_messages(run),
    ]


def _plan_row(plan: PlanResults, gates: Sequence[Entry]) -> tuple[object, ...]:
    cells = [_cell(plan.results.get(gate.name)) for gate in gates]
    name = Html(f'<span class="name">{text(plan.group_id)}</span>')
    return name, Html(f'<code class="whole">{text(plan.plan_id[:12])}</code>'), _verdict(plan.passed), *cells


def _cell(result: Result | None) -> Html:
    if result is None:
        return Html("")
    shown = f"{_value(result['observed'])} / {_value(result['allowed'])}"
    values = f'<span class="whole">{text(shown)}</span>'
    return Html(values if result["passed"] else f'<b class="bad">{values}</b>')


def _messages(run: Run) -> list[str]:
    rows = []
    for plan in run.plans:
        failed = {name: result["message"] for name, result in plan.results.items() if not result["passed"]}
        if failed:
            lines = Html(
                "<br>".join(f"<b>{text(name)}</b> {text(message)}" for name, message in failed.items())
            )
            rows.append((Html(f'<span class="name">{text(plan.group_id)}</span>'), lines))
    return ["<h3>Why plans were rejected</h3>", table(("group", "messages"), rows)] if rows else []


def _check_table(run: Run, checks: Iterable[Entry]) -> str:
    if not run.checks:
        return "<p>The snapshot was not checked.</p>"
    rows = []
    for check in checks:
        result = run.checks.get(check.name)
        if result is not None:
            sentence = _prose(check.fails_when if result["passed"] else result["message"])
            observed, allowed = _value(result["observed"]), _value(result["allowed"])
            rows.append(
                (
                    check.name,
                    _verdict(result["passed"]),
                    observed,
                    _SIGNS[check.comparison],
                    allowed,
                    check.table,
                    sentence,
                )
            )
    headings = ("check", "verdict", "observed#", "", "limit#", "table", "what failed, or fails it")
    return table(headings, rows)


def _prose(words: str) -> Html:
    return Html(re.sub(r"`([^`]+)`", r"<code>\1</code>", text(words)))


def _main(parts: Iterable[str]) -> str:
    return f'<main class="report">{"".join(parts)}</main>'


def _link(address: str, run: Run) -> Html:
    return Html(f'<a href="{text(address)}">{when(run.slot)}</a>')


def _failures(names: Sequence[str], *, is_known: bool) -> Html:
    if not is_known:
        return Html('<span class="soft">none evaluated</span>')
    return Html(f'<span class="bad">{text(", ".join(names))}</span>') if names else badge("passed", "good")


def _verdict(passed: bool | None) -> Html:
    if passed is None:
        return Html("")
    return badge("passed", "good") if passed else badge("failed", "bad")


def _range(values: Iterable[str | None]) -> str:
    """The least and the largest value; of texts, the first distinct ones."""
    distinct = set(values)
    known = {value for value in distinct if value is not None}
    unknown = ["unknown"] if None in distinct else []
    try:
        ordered = sorted(known, key=float)
    except ValueError:
        ordered = sorted(known)
        more = [f"{len(known) - _MAX_DISTINCT} more"] if len(known) > _MAX_DISTINCT else []
        return ", ".join([*ordered[:_MAX_DISTINCT], *more, *unknown])
    ends = dict.fromkeys(_value(one) for one in (*ordered[:1], *ordered[-1:]))
    return ", ".join([" … ".join(ends), *unknown] if ends else unknown)


def _value(value: str | None) -> str:
    """A recorded value, readable: numbers with at most four decimals and separators."""
    if value is None:
        return "unknown"
    try:
        number = float(value)
    except ValueError:
        return value
    if number.is_integer():
        return f"{int(number):,}"
    return f"{number:,.4f}".rstrip("0") if abs(number) < float("inf") else value
