"""Results of single runs under ``docs/bench/field``.

Simulated ones are a file for each trace and utilisation, one run a line. A run is a flat mapping of the
measures of :mod:`tests.bench.field.waiting`, the costs, and what was run. A file knows the code that each
contender ran with, so that a repeated command runs only what is missing.
"""

from __future__ import annotations

import ast
import json
import platform
import sys
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "docs" / "bench" / "field"
MEASURES: Final = (
    "p50_s", "p95_s", "p99_s", "worst_s", "drain_s", "record_s", "above_5s", "above_30s", "above_300s",
    "unfinished", "moves", "rebalances", "unowned_s", "consumer_hours", "broker_requests", "balancer_cpu_s",
)  # fmt: skip
# Digits that are kept: the runs of two seeds differ in the first or the second.
_DIGITS: Final = 3


@dataclass(eq=False)
class ResultFile:
    """The runs of one kind ("simulation" or "broker"), size, trace and utilisation.

    code: The hash of the code that each contender ran with.
    runs: The runs of each contender by seed.
    """

    kind: str
    size: str
    trace: str
    utilisation: float
    folder: Path = FOLDER
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder / f"{self.kind}-{self.size}-{self.trace}-{round(100 * self.utilisation)}.json"

    def read(self) -> ResultFile:
        """Read the runs of the file, if there is one."""
        if self.path.exists():
            text: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            self.command, self.versions, self.code = (text[name] for name in ("command", "versions", "code"))
            self.runs = {
                contender: {row[0]: dict(zip(MEASURES, row[1:], strict=True)) for row in rows}
                for contender, rows in text["runs"].items()
            }
        return self

    def missing(self, contender: str, seeds: Iterable[int], code: str) -> list[int]:
        """Return the seeds without a run of a contender with this code."""
        known = self.runs.get(contender, {}) if self.code.get(contender) == code else {}
        return [seed for seed in seeds if seed not in known]

    def add(self, runs: Iterable[Mapping[str, Any]], code: Mapping[str, str]) -> None:
        """Add runs; those of a contender that ran with other code are forgotten."""
        for run in runs:
            name = run["contender"]
            if self.code.get(name) != code[name]:
                self.code[name], self.runs[name] = code[name], {}
            self.runs[name][run["seed"]] = {each: _rounded(run.get(each)) for each in MEASURES}

    def write(self) -> None:
        """Write the file, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        head = {
            "kind": self.kind, "size": self.size, "trace": self.trace, "utilisation": self.utilisation,
            "command": self.command, "versions": self.versions, "code": dict(sorted(self.code.items())),
            "columns": ["seed", *MEASURES],
        }  # fmt: skip
        lines = [f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items()]
        contenders = ",\n".join(
            f" {json.dumps(name)}: [\n{self._lines(name)}\n ]" for name in sorted(self.runs)
        )
        text = f'{{\n{"".join(lines)} "runs": {{\n{contenders}\n }}\n}}\n'
        whole = self.path.with_suffix(".tmp")
        whole.write_text(text, encoding="utf-8")
        whole.replace(self.path)

    def _lines(self, contender: str) -> str:
        runs = sorted(self.runs[contender].items())
        rows = ([seed, *(run[name] for name in MEASURES)] for seed, run in runs)
        return ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in rows)


def read_results(folder: Path = FOLDER) -> list[ResultFile]:
    """Read all results: files of simulated runs, and a file of each run on the broker, which has its own."""
    heads = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("simulation-*.json"))
    ]
    simulated = [
        ResultFile("simulation", head["size"], head["trace"], head["utilisation"], folder).read()
        for head in heads
    ]
    real: dict[tuple[str, float], ResultFile] = {}
    for path in sorted(folder.glob("broker/*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        file = real.setdefault(
            (run["trace"], run["utilisation"]),
            ResultFile("broker", run["size"], run["trace"], run["utilisation"], folder),
        )
        file.command, file.versions = "python -m tests.bench.field broker", run["versions"]
        file.add([run], {run["contender"]: ""})
    return [*simulated, *real.values()]


def first_owners(
    trace: str, utilisation: float, folder: Path = FOLDER
) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return which pod had each partition at first, by contender and seed of the runs on the broker."""
    runs = (json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("broker/*.json"))
    return {
        (run["contender"], run["seed"]): tuple(run["first_owner"])
        for run in runs
        if (run["trace"], run["utilisation"]) == (trace, utilisation)
        and min(run.get("first_owner", [-1])) >= 0
    }


def _rounded(value: Any) -> float | int | None:
    """Return a number with few digits, without the point of whole ones; None if it is not known."""
    if value is None or value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124  # NaN
        return None
    short = float(f"{float(value):.{_DIGITS}g}")
    return int(short) if short.is_integer() else short


def used_versions(*distributions: str) -> dict[str, str]:
    """Return the version of Python and of distributions."""
    return {"python": platform.python_version()} | {name: version(name) for name in distributions}


def given_command() -> str:
    """Return the command of this process, as it is repeated."""
    return f"python -m tests.bench.field {' '.join(sys.argv[1:])}".rstrip()


def code_hash(modules: Iterable[str]) -> str:
    """Return a hash of modules and of all of this project's that they import, directly or not."""
    wanted, sources = list(modules), dict[str, bytes]()
    while wanted:
        name = wanted.pop()
        path = _source_of(name)
        if path is not None and name not in sources:
            sources[name] = path.read_bytes()
            wanted += _imported(sources[name])
    parts = (name.encode() + b"\0" + source for name, source in sorted(sources.items()))
    return sha256(b"\0".join(parts)).hexdigest()[:12]


def _source_of(name: str) -> Path | None:
    """Return the file of a module; None for other distributions, and for names in modules."""
    stem = ROOT.joinpath(*name.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


@cache
def _imported(source: bytes) -> tuple[str, ...]:
    """Return what a source imports, lazily too: modules, and names that may be modules."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(names)
