"""Data Docs of past verdicts: values beside limits, only the last runs, names as text, nothing loaded."""

from __future__ import annotations

from datetime import timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pandas as pd  # noqa: TID253 - a notebook reads the values as pandas
import pytest

from evenlag.errors import JobError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS, QUALITY_RESULTS, RUNS
from evenlag.policy.gates import GATES
from evenlag.quality.checks import CHECKS
from spark_jobs.data_docs import build_context, build_data_docs
from spark_jobs.steps.expectations import import_great_expectations
from tests.support.lakes.snapshots import NOW, append_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.browser import Browser

# The tables of this lake have the writer `direct`: no test needs a JVM.
HOSTILE = '"><script>alert(1)</script><img src=https://example.com/pixel onerror=alert(2)>'
# A value within the limit and one beyond, as the cycle records them.
VALUES = {
    "no_duplicates": ("0", "2", "0"),
    "complete": ("0", "1", "0"),
    "valid_owners": ("0", "3", "0"),
    "no_violations": ("0", "1", "0"),
    "count_slack": ("1", "2", "1"),
    "max_moves": ("20", "41", "20"),
    "min_gain": ("0.05", "0.049", "0.05"),
    "saves_time": ("0", "-120.0", "0"),
    "cross_rack": ("0.05", "0.5", "0.1"),
    "lag_known": ("0", "4", "0"),
    "snapshot_fresh": ("900.0", "900.5", "900"),
    "group_stable": ("Stable", "Empty", "Stable"),
    "hint_protocol": ("classic", "share", "classic"),
    "hint_assignor": ("evenlag", HOSTILE, "evenlag"),
    "cooldown": ("600.0", "599.9", "600"),
    "payload_fits": ("100", "1048577", "1046540"),
}


def snapshot_id(number: int) -> str:
    return f"{NOW + timedelta(minutes=number):%Y%m%dT%H%M%S}000Z-aaaaaaaa"


def head(number: int) -> dict[str, Any]:
    return {"cluster": "c", "day": NOW.date(), "snapshot_id": snapshot_id(number)}


def verdicts(number: int, group: str, *failing: str) -> list[dict[str, Any]]:
    return [
        head(number)
        | {
            "plan_id": f"plan-{group}-{number}",
            "group_id": group,
            "gate": name,
            "passed": name not in failing,
            "observed": beyond if name in failing else within,
            "allowed": limit,
            "message": f"{name} is broken by {group}" if name in failing else "passed",
        }
        for name, (within, beyond, limit) in VALUES.items()
    ]


def checks(number: int, *failing: str) -> list[dict[str, Any]]:
    rows = []
    settings: dict[float | str, float] = {"min_completeness": 0.995, "max_age_s": 900}
    for check in CHECKS:
        limit = settings.get(check.limit, 0)
        within = 1.0 if limit == 0.995 else limit
        observed = {0.995: 0.5, 900: 901.5, 0: 7}[limit] if check.name in failing else within
        rows.append(
            head(number)
            | {
                "slot": NOW + timedelta(minutes=number),
                "suite": check.suite.value,
                "table_name": check.table,
                "check_name": check.name,
                "passed": check.name not in failing,
                "observed": str(observed),
                "allowed": str(limit),
                "message": f"{check.name} is broken" if check.name in failing else "passed",
                "checked_at": NOW,
            }
        )
    return rows


def run(number: int) -> dict[str, Any]:
    slot = NOW + timedelta(minutes=number)
    more = {"run_id": f"r{number}", "step": "decide", "slot": slot, "started_at": slot, "finished_at": slot}
    return head(number) | more


class Page(HTMLParser):
    """The tables of a page as text, and everything that could load or run something."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.addresses: list[str] = []
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self._is_cell = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data"}]
        if tag == "tr":
            self.rows.append([])
        elif tag in {"th", "td"}:
            self._is_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"th", "td"}:
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.rows[-1][-1] += data

    def row(self, first: str, *, columns: int) -> list[str]:
        """The row of a table with so many columns, by its first cell."""
        (found,) = [row for row in self.rows if row[:1] == [first] and len(row) == columns]
        return found


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of three runs: one good, one whose plans and snapshot fail everything, one without plans."""
    root = tmp_path_factory.mktemp("docs")
    lake = str(root / "lake")
    rows = [*verdicts(0, "good"), *verdicts(1, "good"), *verdicts(1, HOSTILE, *VALUES)]
    append_rows(lake, GATE_RESULTS, rows)
    append_rows(lake, QUALITY_RESULTS, [*checks(1, *(check.name for check in CHECKS)), *checks(2)])
    append_rows(lake, RUNS, [run(number) for number in range(3)])
    assert build_data_docs(LakeReader(lake), "c", root / "pages") == 3
    return root / "pages"


def pages(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("runs/*.html")}


def test_a_run_shows_the_observed_values_and_the_limits_of_each_gate(docs: Path) -> None:
    assert set(VALUES) == {gate.name for gate in GATES}
    page = Page(docs / "runs" / f"{snapshot_id(1)}.html")
    assert page.row("max_moves", columns=6) == ["max_moves", "failed", "1 of 2", "20 … 41", "≤", "20"]
    assert page.row("min_gain", columns=6)[3:] == ["0.049 … 0.05", "≥", "0.05"]
    assert page.row("group_stable", columns=6)[3:] == ["Empty, Stable", "=", "Stable"]
    good = page.row("good", columns=3 + len(GATES))
    assert good[2:] == [
        "passed",
        *["0 / 0"] * 4,
        "1 / 1",
        "20 / 20",
        "0.05 / 0.05",
        "0 / 0",
        "0.05 / 0.1",
        "0 / 0",
        "900 / 900",
        "Stable / Stable",
        "classic / classic",
        "evenlag / evenlag",
        "600 / 600",
        "100 / 1,046,540",
    ]
    rejected = page.row(HOSTILE, columns=3 + len(GATES))
    assert rejected[2:6] == ["failed", "2 / 0", "1 / 0", "3 / 0"]
    assert rejected[9] == "0.049 / 0.05"
    why = page.row(HOSTILE, columns=2)[1]
    assert f"max_moves max_moves is broken by {HOSTILE}" in why


def test_a_run_shows_the_checks_of_its_snapshot(docs: Path) -> None:
    failed = Page(docs / "runs" / f"{snapshot_id(1)}.html")
    row = failed.row("snapshot_complete", columns=7)
    assert row == [
        "snapshot_complete",
        "failed",
        "0.5",
        "≥",
        "0.995",
        "snapshots",
        "snapshot_complete is broken",
    ]
    passed = Page(docs / "runs" / f"{snapshot_id(2)}.html")
    for check in CHECKS:
        assert failed.row(check.name, columns=7)[1] == "failed"
        shown = passed.row(check.name, columns=7)
        assert (shown[1], shown[6]) == ("passed", check.fails_when.replace("`", ""))


def test_the_index_counts_each_run_and_describes_each_expectation(docs: Path) -> None:
    page = Page(docs / "index.html")
    times = [f"{NOW + timedelta(minutes=number):%Y-%m-%d %H:%M:%S}" for number in range(3)]
    assert page.row(times[0], columns=5) == [times[0], "1", "0", "passed", "none evaluated"]
    assert page.row(times[1], columns=5)[1:4] == ["2", "1", ", ".join(sorted(VALUES))]
    assert page.row(times[2], columns=5) == [times[2], "0", "0", "none evaluated", "passed"]
    rows = {gate.name: page.row(gate.name, columns=3) for gate in GATES if gate.name != "snapshot_fresh"}
    assert rows["complete"][1:] == [
        "num_missing = limit",
        "a partition of a topic that a member subscribes to has no owner",
    ]
    linked = [address for address in page.addresses if address]
    assert {(docs / address).is_file() for address in linked} == {True}


def test_names_are_text_and_nothing_is_loaded(docs: Path) -> None:
    for path in [docs / "index.html", *docs.glob("runs/*.html")]:
        page = Page(path)
        assert not page.tags & {
            "script",
            "link",
            "img",
            "iframe",
            "object",
            "embed",
            "form",
            "video",
            "audio",
        }
        assert page.handlers == []
        assert all(not address.startswith(("http", "//", "javascript")) for address in page.addresses)
        assert "<script" not in path.read_text(encoding="utf-8")


def test_a_browser_asks_for_nothing_and_the_pages_fit(browser: Browser, docs: Path) -> None:
    beside = """return [...document.querySelectorAll('main *')].filter(each => {
        const box = each.getBoundingClientRect();
        return box.width > 0 && box.right > innerWidth + 1 && !each.closest('.scroll');
    }).length"""
    for path in (docs / "index.html", docs / "runs" / f"{snapshot_id(1)}.html"):
        for width in (360, 1280):
            browser.open(path.as_uri(), width=width)
            assert browser.complaints() == []
            assert browser.requests() == [path.as_uri()]
            assert browser.run("return document.scripts.length") == 0
            assert browser.run(beside) == 0
    assert HOSTILE in browser.run("return document.body.innerText")


def test_only_the_last_runs_are_shown_and_the_old_pages_go(tmp_path: Path) -> None:
    lake, folder = str(tmp_path / "lake"), tmp_path / "docs" / "c"
    folder.parent.mkdir()
    append_rows(lake, GATE_RESULTS, [row for number in range(3) for row in verdicts(number, "good")])
    # The fourth run evaluated nothing: it has no page.
    append_rows(lake, RUNS, [run(number) for number in (0, 1, 2, 2, 3)])
    assert build_data_docs(LakeReader(lake), "c", folder, num_runs=3) == 2
    assert pages(folder) == {snapshot_id(1), snapshot_id(2)}
    assert build_data_docs(LakeReader(lake), "c", folder, num_runs=1) == 0
    assert pages(folder) == set()
    assert [path.name for path in folder.parent.iterdir()] == ["c"]


def test_a_verdict_that_this_version_would_not_reach_is_shown_as_recorded(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    rows = verdicts(0, "good")
    # Recorded by a version whose limit was another comparison; and a gate that no longer exists.
    rows[5] |= {"passed": False, "message": "moves too much"}
    rows.append({**rows[0], "gate": "abolished", "passed": False, "message": "gone"})
    # A run of before `payload_fits`.
    append_rows(lake, GATE_RESULTS, [row for row in rows if row["gate"] != "payload_fits"])
    append_rows(lake, RUNS, [run(0)])
    assert build_data_docs(LakeReader(lake), "c", tmp_path / "docs") == 1
    path = tmp_path / "docs" / "runs" / f"{snapshot_id(0)}.html"
    page = Page(path)
    assert page.row("max_moves", columns=6)[1:3] == ["failed", "1 of 1"]
    assert page.row("payload_fits", columns=6) == ["payload_fits", "", "0 of 0", "", "≤", ""]
    assert page.row("good", columns=2)[1].endswith("abolished gone")


def test_an_exported_context_runs_again_elsewhere_and_has_the_first_results(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    append_rows(
        lake, GATE_RESULTS, [*verdicts(0, "good"), *verdicts(0, HOSTILE, "max_moves", "hint_assignor")]
    )
    append_rows(lake, QUALITY_RESULTS, checks(0, "lag_unique"))
    append_rows(lake, RUNS, [run(0)])
    for _ in range(2):  # an earlier context is replaced
        assert build_context(LakeReader(lake), "c", tmp_path / "docs" / "context") == 1
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["context"]
    moved = (tmp_path / "docs" / "context").rename(tmp_path / "moved")
    context = import_great_expectations().get_context(mode="file", project_root_dir=moved)
    texts = [
        path.read_text(encoding="utf-8")
        for path in moved.rglob("*.*")
        if path.is_file() and path.suffix != ".parquet"
    ]
    assert not [text for text in texts if str(tmp_path) in text]
    failed = {"gates": {"max_moves", "hint_assignor"}, "bronze": set(), "silver": {"lag_unique"}}
    for name, names in failed.items():
        values = pd.read_parquet(moved / "data" / f"{name}.parquet")
        [again] = context.checkpoints.get(name).run({"dataframe": values}).run_results.values()
        assert {one.expectation_config.meta["name"] for one in again.results if not one.success} == names
        assert all(one.expectation_config.description for one in again.results)
        stored = [
            context.validation_results_store.get(key)
            for key in context.validation_results_store.list_keys()
            if key.expectation_suite_identifier.name == name
        ]
        # The one of the export, and this one.
        assert [result.success for result in stored] == [not names, not names]
    [bad] = [one for one in again.results if not one.success]
    assert bad.result["unexpected_count"] == 1


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear", encoding="utf-8")
    with pytest.raises(JobError, match="evenlag did not write it"):
        build_data_docs(LakeReader(str(tmp_path / "lake")), "c", tmp_path)
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "dear"


def test_folders_beside_that_have_the_names_of_other_clusters_or_copies_stay(tmp_path: Path) -> None:
    others = [tmp_path / name / "index.html" for name in ("orders.new", "orders.old")]
    for other in others:
        other.parent.mkdir()
        other.write_text("kept", encoding="utf-8")
    for _ in range(2):
        build_data_docs(LakeReader(str(tmp_path / "lake")), "orders", tmp_path / "orders")
    assert [other.read_text(encoding="utf-8") for other in others] == ["kept", "kept"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders", "orders.new", "orders.old"]
