"""The demo's verdict, its page, and that Ctrl-C leaves nothing behind; `make demo` runs all of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sandbox.airflow.rest import DagRun
from sandbox.demo.console import Story
from sandbox.demo.page import write_page
from sandbox.demo.result import DemoResult, MemberLag, Promise, PublishedPlan, check_promises
from sandbox.demo.run import HEAVY_BACKLOG, LIGHT_BACKLOG, run_demo, skewed_backlog
from sandbox.demo.sampler import Samples
from sandbox.workload.evidence import Evidence, Overlap
from tests.support.command_in_process import run_in_process
from tests.support.processes import processes_with, wait_until_gone
from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[3]

RESULT = DemoResult(
    plan_id="ab" * 32,
    moves=2,
    sequence=1,
    outcome={"outcome": "APPLIED", "adherence": 1.0, "reason": "every hinted partition is with its member"},
    members=(
        MemberLag("consumer-0", 50_000, 24_000, 22_000, (0, 1), (0, 2)),
        MemberLag("consumer-1", 800, 26_000, 23_000, (2, 3), (1, 3)),
    ),
    elapsed_s=60.0,
)
PLAN = PublishedPlan(head={}, sequence=1, owners={"consumer-0": {0, 2}, "consumer-1": {1, 3}})
CLEAN = Evidence(lost={}, repeated={}, overlaps=(), ownerships=(), num_processed={"consumer-0": 9})


def _kept(**changes: Any) -> list[bool]:
    given: dict[str, Any] = {"result": RESULT, "owners": PLAN.owners, "evidence": CLEAN} | changes
    promises = check_promises(given["result"], PLAN, given["owners"], given["evidence"], records_per_s=100.0)
    return [promise.kept for promise in promises]


def test_a_run_as_it_should_be_keeps_every_promise() -> None:
    assert all(_kept())


@pytest.mark.parametrize(
    ("broken", "changes"),
    [
        (0, {"result": replace(RESULT, sequence=None)}),
        (1, {"result": replace(RESULT, outcome={"outcome": "IGNORED", "adherence": 0.5})}),
        (2, {"owners": {"consumer-0": {0, 1}, "consumer-1": {2, 3}}}),
        (3, {"result": replace(RESULT, elapsed_s=300.0)}),
        (4, {"evidence": replace(CLEAN, lost={("orders", 0): ((5, 6),)})}),
        (5, {"evidence": replace(CLEAN, repeated={("orders", 0): ((5, 6),)})}),
        (6, {"evidence": replace(CLEAN, overlaps=(Overlap(("orders", 0), "a", "b", 0.1),))}),
    ],
    ids=["not published", "not applied", "not as hinted", "only drained", "lost", "twice", "two owners"],
)
def test_each_promise_can_be_broken_and_only_that_one_is(broken: int, changes: dict[str, Any]) -> None:
    assert _kept(**changes) == [number != broken for number in range(7)]


def test_a_client_in_java_is_for_the_classic_protocol() -> None:
    done = run_in_process(["demo", "--protocol", "consumer", "--client", "java"])
    assert done.returncode == 2
    assert "leave --protocol consumer out" in done.stderr


def test_the_backlog_is_where_the_first_consumer_is() -> None:
    backlog = skewed_backlog({"consumer-1": {0, 1, 2}, "consumer-0": {3, 7, 9}})
    assert [backlog[number] for number in (3, 7, 9)] == list(HEAVY_BACKLOG)
    assert {backlog[number] for number in (0, 1, 2)} == {LIGHT_BACKLOG}


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.asked_for: list[str] = []
        self.open_tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "data", "action"} and not (value or "").startswith("#"):
                self.asked_for.append(f"{tag} {name}={value}")
        self.open_tags.append(tag)


def _page(tmp_path: Path, **changes: Any) -> str:
    samples = Samples(
        at_s=[0.0, 2.0, 4.0],
        lag_by_name={"consumer-0": [50_000, 40_000, 22_000], "consumer-1": [800, None, 23_000]},
        marks=[(0.5, "first run"), (3.0, "hint followed")],
    )
    given: dict[str, Any] = {"result": RESULT, "promises": (Promise("it <holds>", kept=True, seen="yes"),)}
    write_page(tmp_path / "p.html", samples=samples, **(given | changes))
    return (tmp_path / "p.html").read_text(encoding="utf-8")


def test_the_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    page = _page(tmp_path)
    links = _Links()
    links.feed(page)
    assert links.asked_for == []
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "<script" not in page


def test_the_page_shows_the_numbers_and_describes_its_pictures(tmp_path: Path) -> None:
    page = _page(tmp_path)
    assert "went from 50,000 to 23,000 records behind" in page
    assert page.count('<svg role="img" aria-label="') == 2
    assert "it &lt;holds&gt;" in page
    assert "prefers-color-scheme: dark" in page
    # Every colour of the pictures is one of the page's.
    assert not re.search(r"#0([1-9])(?:0\1){2}\b", page)


def test_the_page_says_whether_it_was_worth_it(tmp_path: Path) -> None:
    # 50,000 of 50,800 records before, 23,000 of 45,000 after.
    assert "the group&#x27;s lag went from 98.4 % to 51.1 %" in _page(tmp_path)
    broken = (Promise("it <holds>", kept=False, seen="no"), Promise("fine", kept=True, seen="yes"))
    assert "Not kept: it &lt;holds&gt;." in _page(tmp_path, promises=broken)


def test_the_page_says_when_a_promise_is_broken(tmp_path: Path) -> None:
    page = _page(tmp_path, promises=(Promise("it holds", kept=False, seen="no"),))
    assert "<h1>Not every promise was kept</h1>" in page
    assert "BROKEN" in page


def test_a_run_is_shown_with_all_its_tasks_the_cycle_s_own_first(capsys: pytest.CaptureFixture[str]) -> None:
    states = {"report": None, "publish": "running", "observe": "success", "decide": "success"}
    with Story().dag_run("first run") as show:
        show(DagRun("lag_rebalance__sandbox", "r", "running", states))
    names = ["observe success", "decide success", "publish running", "report waiting"]
    shown = capsys.readouterr().out
    assert sorted(names, key=shown.rindex) == names


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    assert run_demo(tmp_path) == 1
    assert "no earlier demo's" in capsys.readouterr().out
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.extended
@pytest.mark.airflow
@pytest.mark.broker
# Both signals end the demo in the same way; each starts a broker and an Airflow.
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.soak),
    ],
)
def test_a_demo_that_is_stopped_leaves_no_process_behind(how: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo = subprocess.Popen(
        [sys.executable, "-m", "evenlag", "demo", "--folder", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY, start_new_session=True,
    )  # fmt: skip
    try:
        # Airflow's parts are being started: broker, guards, keepers and forks are all there.
        log = folder / "airflow" / "scheduler.log"
        wait_until(lambda: log.exists() or demo.poll() is not None, what="no scheduler starts")
        wait_until(lambda: len(processes_with(str(folder))) > 4 or demo.poll() is not None)
        assert demo.poll() is None, demo.communicate()[0]

        demo.send_signal(how)
        output, _ = demo.communicate(timeout=600)

        assert demo.returncode == 130, output
        assert "nothing runs any more" in output
        wait_until_gone(str(folder))
    finally:
        demo.kill()
        for pid in processes_with(str(folder)):
            os.kill(pid, signal.SIGKILL)
