"""One module uses py4j's objects of the classic session; all others work on both kinds of session."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from spark_jobs.runtime.entry_point import identify_job

ROOT: Final = Path(__file__).resolve().parents[3] / "spark_jobs"
CLASSIC: Final = ROOT / "runtime" / "classic_session.py"
# What a session on a Spark Connect server does not have.
NAMES: Final = {"sparkContext", "_jvm", "_jsc", "_jsparkSession", "_jdf", "_gateway", "rdd", "newSession"}
MODULES: Final = {"delta.tables", "pyspark.rdd", "pyspark.accumulators", "pyspark.broadcast"}


def classic_parts(text: str) -> list[str]:
    """Return the parts of a module that need a classic session, with their lines."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [node.attr] if node.attr in NAMES else []
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module in MODULES else []
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names if name.name in MODULES]
        elif isinstance(node, ast.Constant) and node.value in NAMES:
            # As in getattr(spark, "_jvm").
            names = [str(node.value)]
        found += [f"{getattr(node, 'lineno', 0)}: {name}" for name in names if name]
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spark.sparkContext.addPyFile('x')\n", ["1: sparkContext"]),
        ("from delta.tables import DeltaTable\n", ["1: delta.tables"]),
        ("import delta.tables\n", ["1: delta.tables"]),
        ("frame.rdd.map(f)\n", ["1: rdd"]),
        ("getattr(spark, '_jvm')\n", ["1: _jvm"]),
        ("spark.sql('SELECT 1').collect()\n", []),
    ],
)
def test_the_check_finds_what_needs_a_classic_session(text: str, expected: list[str]) -> None:
    assert classic_parts(text) == expected


def test_only_one_module_needs_a_classic_session() -> None:
    assert classic_parts(CLASSIC.read_text(encoding="utf-8"))
    others = {
        str(file.relative_to(ROOT)): parts
        for file in sorted(ROOT.rglob("*.py"))
        if file != CLASSIC and (parts := classic_parts(file.read_text(encoding="utf-8")))
    }
    assert others == {}


def test_a_repeat_has_the_identity_of_its_job_and_others_have_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("EVENLAG_CONFIG", raising=False)
    monkeypatch.delenv("EVENLAG_LAKE", raising=False)
    arguments = {"cluster": "c", "config": "a.yaml", "run_id": "r1", "events_fd": 3, "quiet": True}
    first = identify_job("spark_jobs.audit", arguments)
    repeated = arguments | {"run_id": "r2", "events_fd": None, "quiet": False}
    assert identify_job("spark_jobs.audit", repeated) == first
    others = [
        identify_job("spark_jobs.audit", arguments | {"cluster": "d"}),
        identify_job("spark_jobs.audit", arguments | {"config": "b.yaml"}),
        identify_job("spark_jobs.compare", arguments),
    ]
    monkeypatch.chdir(tmp_path)
    others.append(identify_job("spark_jobs.audit", arguments))
    monkeypatch.setenv("EVENLAG_LAKE", "/elsewhere")
    others.append(identify_job("spark_jobs.audit", arguments))
    assert len({first, *others}) == 6
