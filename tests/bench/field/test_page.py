"""The tables of the page are those of the results, and say what the runs say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.field.page import PAGE, RENDERERS, render
from tests.bench.field.results import MEASURES, ResultFile, read_results
from tests.bench.field.simulate import DRAW

if TYPE_CHECKING:
    from pathlib import Path

WAITING_S = {
    "evenlag": 2.0, "evenlag-watch": 1.0, "cooperative-sticky": 40.0, "uniform": 20.0, "share": 1.5,
    "kip-169": 1.95, "oracle": 1.0,
}  # fmt: skip


def file_of(folder: Path, kind: str, size: str, by_contender: dict[str, float]) -> ResultFile:
    """Return ten seeds, in which all wait longer the higher the seed."""
    found = ResultFile(kind, size, "walks", 0.75, folder, "python -m tests.bench.field", {"numpy": "2.4"})
    runs: list[dict[str, Any]] = [
        dict.fromkeys(MEASURES, 0) | {"contender": name, "seed": seed, "p99_s": value * (1 + seed / 10)}
        for name, value in by_contender.items()
        for seed in range(10)
    ]
    found.add(runs, dict.fromkeys(by_contender, "abc"))
    return found


def table(name: str, *files: ResultFile) -> list[list[str]]:
    """Return the cells of a table below its header."""
    page = render(f"<!-- table {name}: written by tests.bench.field -->\n<!-- end -->\n", files)
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert render(text, read_results()) == text, "run: python -m tests.bench.field draw"
    assert all(f"<!-- table {name}: " in text for name in RENDERERS)


def test_evenlag_is_ranked_among_those_it_competes_with(tmp_path: Path) -> None:
    [[trace, own, best, ratio, rank, ahead, oracle]] = table(
        "ranks", file_of(tmp_path, "simulation", "simulation", WAITING_S)
    )
    assert (trace, oracle) == ("`walks`", "1.4")
    assert own.startswith("2.9 (2.")
    assert best.startswith("29 (2")
    assert best.endswith(" `uniform`")
    # Each seed has the same ratio, so that its interval is a point.
    assert ratio == "0.1"
    # Neither evenlag's other form nor the oracle takes a rank, nor who is better by 2 % only.
    assert (rank, ahead) == ("2", "`share`")
    files = [file_of(tmp_path, "simulation", "simulation", WAITING_S)]
    assert "| rank of 5 |" in render(
        "<!-- table ranks: written by tests.bench.field -->\n<!-- end -->\n", files
    )


def test_a_month_counts_the_groups_in_which_a_contender_waits_least(tmp_path: Path) -> None:
    file = file_of(tmp_path, "simulation", "30-days", {"evenlag": 2.0, "cooperative-sticky": 40.0})
    file.trace = "month"
    file.runs["evenlag"][3]["p99_s"], file.runs["evenlag"][4]["p99_s"] = 1000, 55.5
    own, base = table("month", file)
    # In one group Kafka's waits less, and in one both wait the same but for 1 %.
    assert (own[0], own[-1]) == ("`evenlag`", "8 of 10")
    assert (base[0], base[-1]) == ("`cooperative-sticky`", "1 of 10")
    assert base[3].startswith("58 (4")


def test_a_run_on_the_broker_stands_beside_its_simulation(tmp_path: Path) -> None:
    waits = {"evenlag": 2.0, "uniform": 20.0, "kip-169": 9.0, "share": 1.0}
    real = file_of(tmp_path, "broker", "broker", waits)
    model = file_of(tmp_path, "simulation", "broker", {"evenlag-watch": 2.2, "uniform": 24.0, "kip-169": 5.0})
    # Each seed has other draws, in some of which `uniform` waits less than on the broker.
    for name, runs in model.runs.items():
        for draw, factor in enumerate((0.7, 1.0, 1.3), 1):
            share = factor if name == "uniform" else 1.0
            drawn = {
                DRAW * draw + n: run | {"p99_s": share * run["p99_s"]} for n, run in runs.items() if n < DRAW
            }
            model.runs[name] = model.runs[name] | drawn
    rows = {row[1]: row for row in table("broker", real, model)}
    verdicts = {name: row[-1] for name, row in rows.items()}
    assert verdicts == {
        "`evenlag`": "within 15 %", "`uniform`": "by chance", "`kip-169`": "no", "`share`": "",
    }  # fmt: skip
    assert rows["`share`"][4] == ""


def test_without_results_the_page_says_so() -> None:
    text = "<!-- table ranks: written by tests.bench.field -->\n<!-- end -->\n"
    once = render(text, ())
    assert "No results yet." in once
    assert render(once, ()) == once
