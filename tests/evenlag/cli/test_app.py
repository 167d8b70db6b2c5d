"""The command starts fast, loads nothing that it does not need, and says what is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
JVM_SIDE = ("pyspark", "delta", "great_expectations", "pandas", "airflow", "matplotlib", "sandbox")
LAKE_SIDE = ("deltalake", "pyarrow", "kafka", "numpy", "pydantic", "yaml")

_CALL = """
import sys
from evenlag.__main__ import main
sys.argv = ["evenlag", *sys.argv[2:]]
try:
    main()
except SystemExit:
    pass
print("LOADED", *(name for name in HEAVY if name in sys.modules), file=sys.stderr)
"""


def _loaded(*arguments: object) -> set[str]:
    code = _CALL.replace("HEAVY", repr((*JVM_SIDE, *LAKE_SIDE)))
    answer = subprocess.run(
        [sys.executable, "-c", code, "-", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert answer.returncode == 0, answer.stderr
    return set(answer.stderr.splitlines()[-1].split()[1:])


def test_help_loads_no_heavy_module() -> None:
    assert _loaded("--help") == set()


def test_looking_at_the_lake_loads_nothing_of_spark_or_airflow(lake: Path) -> None:
    # pyarrow.dataset itself loads pandas where that is installed; the extra `cli` does not bring it.
    unwanted = set(JVM_SIDE) - {"pandas"}
    assert _loaded("lag", "--lake", lake) & unwanted == set()
    assert _loaded("plans", "--lake", lake) & unwanted == set()
    assert _loaded("doctor", "--lake", lake, "--only", "lake", "--only", "spark.packages") & unwanted == set()


@pytest.mark.parametrize(
    ("hidden", "arguments", "extra"),
    [
        ("typer", ("--help",), "evenlag[cli]"),
        ("deltalake", ("lag", "--lake", "x"), "evenlag[cli]"),
        ("kafka", ("hints", "-b", "127.0.0.1:1"), "evenlag[cli]"),
        ("pyspark", ("run", "-b", "127.0.0.1:1"), "evenlag[spark]"),
        ("airflow", ("demo",), "evenlag[airflow]"),
    ],
)
def test_a_missing_extra_is_named(
    hidden: str, arguments: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    code = (
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {hidden!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        f"sys.argv = ['evenlag', *{arguments!r}]\n"
        "from evenlag.__main__ import main\n"
        "main()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert answer.returncode == 1
    assert extra in answer.stderr
    assert answer.stderr.count("\n") == 1
