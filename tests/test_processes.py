"""The whole suite runs in several processes, a part in one; a real pytest runs a small one by our rules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.fixtures.processes import DURATIONS, NUM_PROCESSES, next_unit, work_units

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
import os
import pytest

def note(name):
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{name} {os.environ.get('PYTEST_XDIST_WORKER', 'here')}\\n")

@pytest.fixture(scope="session")
def costly():
    note("costly")

@pytest.fixture
def through_another(costly):
    pass

@pytest.fixture(autouse=True)
def noted(request):
    note(request.path.stem)
"""
FILES = {
    "test_first.py": "def test_one(costly): pass\ndef test_two(): pass\ndef test_three(): pass\n",
    "test_second.py": "def test_four(): pass\ndef test_five(): pass\ndef test_six(): pass\n",
    "test_third.py": "def test_seven(): pass\ndef test_eight(through_another): assert 0\n",
    "test_fourth.py": "import pytest\n@pytest.mark.parametrize('x', ['a@b'])\ndef test_nine(x): assert 0\n",
    "test_fifth.py": "import pytest\n@pytest.mark.extended\ndef test_ten(): pass\n",
    "test_seventh.py": "def test_twelve(): pass\n",
    "test_sixth.py": "import pytest\n@pytest.mark.extended\n@pytest.mark.soak\ndef test_eleven(): pass\n",
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with this project's own settings."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    options, markers = settings["ini_options"]["addopts"], settings["ini_options"]["markers"]
    lines = [
        "[pytest]",
        "testpaths = suite",
        f"addopts = {options}",
        "markers =",
        *(f"  {x}" for x in markers),
    ]
    (tmp_path / "pytest.ini").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "suite").mkdir()
    for name, text in {"conftest.py": CONFTEST, **FILES}.items():
        (tmp_path / "suite" / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(suite: Path, *arguments: str) -> tuple[list[str], dict[str, set[str]], int]:
    """Run pytest; the lines that it prints, the processes of each file and fixture, and how many starts."""
    journal = suite / "journal"
    journal.unlink(missing_ok=True)
    others = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    # Other plugins would only take time to load.
    others |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.support.fixtures.processes", *arguments],
        cwd=suite,
        env=others | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "JOURNAL": str(journal)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    notes = [line.split() for line in journal.read_text(encoding="utf-8").splitlines()]
    where: dict[str, set[str]] = {}
    for name, process in notes:
        where.setdefault(name, set()).add(process)
    return done.stdout.splitlines(), where, sum(name == "costly" for name, _ in notes)


def test_the_whole_suite_runs_in_several_processes_and_a_shared_fixture_in_one(suite: Path) -> None:
    several = [] if (os.cpu_count() or 1) > 1 else ["-n", str(NUM_PROCESSES)]
    lines, where, num_starts = run(suite, *several, "--durations=0", "-vv")

    assert num_starts == 1
    assert not where.keys() & {"test_fifth", "test_sixth"}
    assert where["test_first"] == where["test_third"] == where["costly"]
    assert all(len(processes) == 1 for processes in where.values())
    assert set.union(*where.values()) == {f"gw{number}" for number in range(NUM_PROCESSES)}
    assert re.search(r"\b2 failed, 8 passed in \d", lines[-1])
    failed = [line.split()[1] for line in lines if line.startswith("FAILED ")]
    assert sorted(failed) == ["suite/test_fourth.py::test_nine[a@b]", "suite/test_third.py::test_eight"]
    assert any(line.endswith("call     suite/test_first.py::test_one") for line in lines)


@pytest.mark.parametrize(
    "part", [["-k", "test_o or test_f"], ["suite/test_first.py"], ["-s"], ["-m", "soak or not soak"]]
)
def test_a_part_runs_in_this_process(part: list[str], suite: Path) -> None:
    _, where, _ = run(suite, *part)
    assert set.union(*where.values()) == {"here"}


@pytest.mark.parametrize(
    ("arguments", "long_ones"),
    [
        (["--extended"], {"test_fifth"}),
        (["suite/test_fifth.py", "suite/test_sixth.py"], {"test_fifth"}),
        (["--extended", "-m", "extended"], {"test_fifth"}),
        (["--extended", "-m", "extended and not soak"], {"test_fifth"}),
        (["-m", "soak"], {"test_sixth"}),
    ],
)
def test_long_tests_run_if_they_are_asked_for(arguments: list[str], long_ones: set[str], suite: Path) -> None:
    _, where, _ = run(suite, "-n2", *arguments)
    assert where.keys() & {"test_fifth", "test_sixth"} == long_ones


def test_files_are_joined_also_by_way_of_others() -> None:
    fixtures = {"a": {"x"}, "b": {"y"}, "c": set[str](), "d": {"z"}, "e": {"x", "y"}, "f": {"z"}}
    assert work_units(fixtures) == {"a": "a", "b": "a", "c": "c", "d": "d", "e": "a", "f": "d"}


@pytest.mark.parametrize(
    ("process", "unit", "last"), [(0, "b", "b"), (1, "b", "b"), (2, "a", None), (3, "a", None), (4, "b", "b")]
)
def test_two_processes_begin_with_spark_and_the_others_start_no_session(
    process: int, unit: str, last: str | None
) -> None:
    assert next_unit(["a", "b", "c"], {"b"}, process) == unit
    assert next_unit(["b"], {"b"}, process) == last
    assert next_unit(["a"], {"b"}, process) == "a"


def test_durations_are_those_of_files_that_exist() -> None:
    stored = json.loads(DURATIONS.read_text(encoding="utf-8"))
    assert [file for file in stored if not (ROOT / file).is_file()] == []
