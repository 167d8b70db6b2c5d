"""The tables of ``docs/evidence.md``: what the results say, between its comments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tests.bench.field.days import BASE
from tests.bench.field.days import TRACE as MONTH
from tests.bench.field.field_table import KAFKAS, OURS, REFERENCES, FieldTable
from tests.bench.field.results import ROOT
from tests.bench.field.simulate import DRAW
from tests.bench.field.statistics import Interval, ranks
from tests.bench.field.traces import NAMES as TRACES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.bench.field.results import ResultFile

PAGE: Final = ROOT / "docs" / "evidence.md"
JUDGED: Final = 0.75
OTHERS: Final = (0.6, 0.9)
"""The utilisation of the main tables, and the others."""
SIMULATION: Final = ("simulation", "simulation")
BROKER: Final = ("broker", "broker")
SIMULATED_AS: Final = {"evenlag": "evenlag-watch"}
"""Contenders whose simulation has another name: on the broker evenlag's cycles are those of ``--watch``."""
# What a run on the broker may differ by from its simulation, of which so many draws are made.
AGREES_WITHIN: Final = 0.15
DRAWS: Final = 40
_BLOCK: Final = re.compile(
    r"(<!-- table (\S+): written by tests\.bench\.field -->\n).*?(<!-- end -->)", re.DOTALL
)


# By kind, size, trace and utilisation.
Tables: TypeAlias = "dict[tuple[str, str, str, float], FieldTable]"


def tables_of(files: Iterable[ResultFile]) -> Tables:
    """Return the runs of files."""
    return {
        (file.kind, file.size, file.trace, file.utilisation): FieldTable(file) for file in files if file.runs
    }


def render(page: str, files: Iterable[ResultFile]) -> str:
    """Return a page with each of its tables replaced by that of the results."""
    tables = tables_of(files)

    def replaced(block: re.Match[str]) -> str:
        rows = RENDERERS[block[2]](tables)
        text = "\n".join(rows) if len(rows) > 2 else "No results yet."
        return f"{block[1]}\n{text}\n\n{block[3]}"

    return _BLOCK.sub(replaced, page)


def seconds(value: float) -> str:
    """Return seconds with two or three digits that count, or that it did not end.

    Examples
    --------
    >>> seconds(0.0123), seconds(2.345), seconds(364.66), seconds(float("inf"))
    ('0.01', '2.3', '365', 'not drained')
    """
    if not np.isfinite(value):
        return "not drained"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def interval_text(interval: Interval, text: Callable[[float], str] = seconds) -> str:
    r"""Return a value and its interval.

    Examples
    --------
    >>> interval_text((2.0, 1.0, 30.0)) == "2.0 (1.0\N{EN DASH}30)"
    True
    """
    value, low, high = map(text, interval)
    return value if value == low == high else f"{value} ({low}\N{EN DASH}{high})"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*names: str) -> list[str]:
    return [_row(names), "| " + " | ".join(["---"] * len(names)) + " |"]


def _ratio(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def rank_rows(tables: Tables) -> list[str]:
    """Return evenlag beside Kafka's best assignor and among all, by trace."""
    ranked = list(_ranked(tables, JUDGED))
    rows = _head(
        "trace", "`evenlag`, s", "Kafka's best, s", "ratio", _rank_title(ranked), "ahead of it", "oracle, s"
    )
    for trace, table, best in ranked:
        cells = (
            interval_text(table.interval(OURS, "p99_s")),
            f"{interval_text(table.interval(best, 'p99_s'))} `{best}`",
            *_ratio_and_rank(table, best),
            ", ".join(f"`{name}`" for name in table.better()),
            seconds(table.interval("oracle", "p99_s").value) if "oracle" in table.file.runs else "",
        )
        rows.append(_row((f"`{trace}`", *cells)))
    return rows


def other_rank_rows(tables: Tables) -> list[str]:
    """Return the ratio and the rank at other utilisations."""
    ranked = {each: list(_ranked(tables, each)) for each in OTHERS}
    titles = {each: ("ratio", _rank_title(ranked[each])) for each in OTHERS}
    head = [f"{what} at {round(100 * each)} %" for each in OTHERS for what in titles[each]]
    cells: dict[str, list[str]] = {}
    for number, utilisation in enumerate(OTHERS):
        for trace, table, best in ranked[utilisation]:
            row = cells.setdefault(trace, [""] * len(head))
            row[2 * number : 2 * number + 2] = _ratio_and_rank(table, best)
    return [*_head("trace", *head), *(_row((f"`{trace}`", *row)) for trace, row in cells.items())]


def _ranked(tables: Tables, utilisation: float) -> Iterator[tuple[str, FieldTable, str]]:
    """Simulated traces with evenlag and Kafka's own assignors, and the best of these."""
    for trace in TRACES:
        table = tables.get((*SIMULATION, trace, utilisation))
        if table is not None and table.kafkas and OURS in table.file.runs:
            yield trace, table, table.best(table.kafkas)


def _ratio_and_rank(table: FieldTable, best: str) -> tuple[str, str]:
    rank = interval_text(table.rank(), lambda rank: f"{rank:.0f}")
    return interval_text(table.ratio(OURS, best), _ratio), rank


def _rank_title(ranked: Sequence[tuple[str, FieldTable, str]]) -> str:
    """Return the title of ranks, with the number of ranks."""
    numbers = sorted({len(table.others) + 1 for _, table, _ in ranked})
    return f"rank of {' or '.join(map(str, numbers))}" if numbers else "rank"


def field_rows(tables: Tables, *, kind: tuple[str, str] = SIMULATION) -> list[str]:
    """Return the median of the 99th percentile of each contender on each trace."""
    found = {trace: tables[*kind, trace, JUDGED] for trace in TRACES if (*kind, trace, JUDGED) in tables}
    contenders = {name: None for table in found.values() for name in table.file.runs}
    rows = _head("contender", *(f"`{trace}`" for trace in found))
    for name in sorted(contenders, key=lambda name: (name in REFERENCES, _place(name))):
        cells = [
            seconds(table.interval(name, "p99_s").value) if name in table.file.runs else ""
            for table in found.values()
        ]
        rows.append(_row((f"`{name}`", *cells)))
    return rows


def cost_rows(tables: Tables, *, trace: str = "walks") -> list[str]:
    """Return what each contender costs on one trace: medians of a run. Who costs as `BASE` is left out."""
    table = tables.get((*SIMULATION, trace, JUDGED))
    measures = {
        "consumer-hours": "consumer_hours", "moves": "moves", "rebalances": "rebalances",
        "partition-seconds without owner": "unowned_s", "requests": "broker_requests",
        "CPU, s": "balancer_cpu_s",
    }  # fmt: skip
    rows = _head("contender", *measures)
    if table is None:
        return rows
    values_of = {
        name: [table.interval(name, measure).value for measure in measures.values()]
        for name in sorted(set(table.file.runs).difference(REFERENCES), key=_place)
    }
    for name, values in values_of.items():
        if name != BASE and values == values_of.get(BASE):
            continue
        texts = (f"{value:,.3g}" if value < 1e3 else f"{value:,.0f}" for value in values)
        rows.append(_row((f"`{name}`", *texts)))
    return rows


def broker_rows(tables: Tables) -> list[str]:
    """Return the runs on the broker: the 99th percentile, time to drain, and both of the simulation.

    What is by chance in a group differs from draw to draw: the order of random member ids decides who gets
    which partitions. A simulated value is the median of the draws, with the range of 95 % of them.
    """
    rows = _head(
        "trace", "contender", "broker p99, s", "simulated p99, s", "broker drain, s",
        "simulated drain, s", "agrees",
    )  # fmt: skip
    for trace in TRACES:
        table = tables.get((*BROKER, trace, JUDGED))
        if table is not None:
            simulated = tables.get(("simulation", "broker", trace, JUDGED))
            rows += [
                _broker_row(trace, name, table, simulated) for name in sorted(table.file.runs, key=_place)
            ]
    return rows


def _broker_row(trace: str, name: str, broker: FieldTable, simulated: FieldTable | None) -> str:
    cells, agrees = [], []
    own = SIMULATED_AS.get(name, name)
    for measure in ("p99_s", "drain_s"):
        # Without an outage a drain begins where the lag is largest, which is by chance.
        if measure == "drain_s" and trace != "backlog":
            cells += ["", ""]
            continue
        real = broker.interval(name, measure)
        cells.append(interval_text(real))
        if simulated is None or own not in simulated.file.runs:
            cells.append("")
            continue
        model = drawn_interval(simulated, own, measure, broker.seeds)
        cells.append(interval_text(model))
        agrees.append(agreement(real.value, model))
    verdict = next((each for each in ("no", "by chance", "within 15 %") if each in agrees), "")
    return _row((f"`{trace}`", f"`{name}`", *cells, verdict))


def drawn_interval(simulated: FieldTable, name: str, measure: str, seeds: Sequence[int]) -> Interval:
    """Return the median of the draws, and where 95 % of them are; a draw is the median of these seeds."""
    values: dict[int, list[float]] = {}
    for seed, value in zip(simulated.seeds, simulated.values(name, measure).tolist(), strict=True):
        if seed % DRAW in seeds:
            values.setdefault(seed // DRAW, []).append(value)
    low, middle, high = np.quantile([np.median(each) for each in values.values()], (0.025, 0.5, 0.975))
    return Interval(float(middle), float(low), float(high))


def agreement(real: float, model: Interval) -> str:
    """Return whether a simulated value is that of the broker, or its range has it."""
    if differs(real, model.value) <= AGREES_WITHIN:
        return "within 15 %"
    return "by chance" if model.low <= real <= model.high else "no"


def differs(real: float, model: float) -> float:
    """Return how far a simulated value is from the real one, as a share of it."""
    if model == real:
        return 0.0
    return abs(model - real) / real if np.isfinite(real) and real > 0 else np.inf


def month_rows(tables: Tables) -> list[str]:
    """Return a month of many groups: medians over groups, and who waits less in how many of them."""
    measures = ("p50_s", "p95_s", "p99_s", "worst_s")
    counts = {"moves": "moves", "rebalances": "rebalances", "partition-seconds without owner": "unowned_s"}
    rows = _head("contender", "p50, s", "p95, s", "p99, s", "worst, s", *counts, "least p99 in groups")
    table = next((table for (_, _, trace, _), table in tables.items() if trace == MONTH), None)
    if table is None:
        return rows
    for name in sorted(table.file.runs, key=_place):
        others = (table.waiting_s(other) for other in table.file.runs if other != name)
        own, least = table.waiting_s(name), np.min(list(others), axis=0)
        ahead = int((ranks(least, own[None]) > 1).sum())
        cells = [interval_text(table.interval(name, measure)) for measure in measures]
        cells += [f"{table.interval(name, measure).value:,.0f}" for measure in counts.values()]
        rows.append(_row((f"`{name}`", *cells, f"{ahead} of {len(table.seeds)}")))
    return rows


def run_rows(tables: Tables) -> list[str]:
    """Return what ran: how many seeds and contenders, with which versions, and the command."""
    rows = _head("runs", "traces", "seeds", "contenders", "command", "versions", "code")
    for kind in (SIMULATION, BROKER):
        own = [table for (*names, _, _), table in tables.items() if tuple(names) == kind]
        if own:
            seeds = sorted({len(table.seeds) for table in own})
            file = own[0].file
            rows.append(
                _row(
                    (
                        "simulated" if kind == SIMULATION else "broker",
                        str(len({table.file.trace for table in own})),
                        " to ".join(map(str, sorted({seeds[0], seeds[-1]}))),
                        str(max(len(table.file.runs) for table in own)),
                        f"`{file.command}`",
                        ", ".join(f"{name} {version}" for name, version in file.versions.items()),
                        ", ".join(
                            f"`{code}`"
                            for code in sorted({t.file.code[OURS] for t in own if t.file.code.get(OURS)})
                        ),
                    )
                )
            )
    return rows


def _place(name: str) -> tuple[int, str]:
    """Return where a contender is in tables: evenlag first, then Kafka's own, then the others."""
    return (0 if name.startswith(OURS) else 1 if name in KAFKAS else 2, name)


RENDERERS: Final[dict[str, Callable[[Tables], list[str]]]] = {
    "ranks": rank_rows,
    "other-ranks": other_rank_rows,
    "field": field_rows,
    "costs": cost_rows,
    "broker": broker_rows,
    "month": month_rows,
    "runs": run_rows,
}
"""What renders each table."""
