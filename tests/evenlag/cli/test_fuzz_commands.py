"""Whatever is given to any command: an answer or one clear line, and a documented exit code.

The commands and their options are read from the command's own tree, so a new one is called too. What would
start a JVM, reach a broker or decide on a plan ends in `_ReachedError` instead: all before it really runs.
"""

from __future__ import annotations

import json
import os
import re
import socket
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest
import typer
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.enums import ResetPolicy
from evenlag.errors import JobError
from evenlag.queries.comparisons import By
from tests.support.lakes import report_lake as written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from typer.testing import Result

pytestmark = pytest.mark.jvm

GROUP: Final = "[/x] [bold :smile: \x1b[2J\nerror: <b>\u202e"
POLICY: Final = """\
lake: {lake}
clusters:
  orders: {{bootstrap_servers: "127.0.0.1:1", schedule: null}}
"""
PROBLEM: Final = {
    "assignor": "sticky",
    "topics": {"t": 2},
    "members": [{"id": "[/x]\x1b[2J", "topics": ["t"]}],
    "lags": {"t": [5, 1]},
}
EXIT_CODES: Final = {0, 1, 2, 3, 4, 130}
_FEW, _MANY = 8, 400

_NUMBERS: Final = (
    *(
        "0",
        "-1",
        "1",
        "0.01",
        "inf",
        "-inf",
        "nan",
        "1e308",
        "1e-320",
        "900000",
        "1e400",
        "0x10",
        "\uff11\uff12",
    ),
    *(str(2**31), str(2**63), str(10**30), "9" * 5_000, "1_0", "٣"),
)
_MOMENTS: Final = (
    *("0001-01-01", "9999-12-31", "0001-01-01T00:00+14:00", "9999-12-31T23:59:59-14:00", "1970-01-01"),
    *(
        "2999-12-31T23:59:59.999999Z",
        "2026-02-30",
        "now",
        "2026-11-21T13:05:00+99:00",
        "20261121",
        "2026-W01",
    ),
)
_TEXTS: Final = (
    *("", " ", "\0", "\n", "\x1b[2J", "\udcff", "\ud800", "[/x]", "[bold", "[[/]]", ":smile:", "\U0010ffff"),
    *(
        "a" * 70_000,
        "-",
        "--",
        "--json",
        "{}",
        "%s",
        "\u202e",
        "host:99999",
        "host:port",
        ",",
        "host:1,,",
        "::",
    ),
    *("/[/", "/a{99999999999}/", "*", "orders", "payments", "all", "sticky", "lag-aware:min_gain=nan"),
    *("evil.csv", "folder", "no/such/folder.csv", "evil.json", ".csv", "policy.yaml", "bytes", "f" * 300),
)
# Valid values, by a parameter's name: so that most calls get past the other options.
_VALID: Final[dict[str, tuple[str, ...]]] = {
    "cluster": ("orders",),
    "group": (GROUP,),
    "plan_id": (written.PLAN, "a1"),
    "plan": (written.PLAN, "a1"),
    "config": ("policy.yaml",),
    "path": ("policy.yaml", "bytes", "folder"),
    "file": ("problem.json", "bytes", "-"),
    "folder": ("folder",),
    "output": ("report.html",),
    "textfile": ("metrics.prom", "folder/metrics.prom"),
    "export": ("rows.csv", "rows.parquet", "rows.json"),
    "since": ("2026-03-01T12:00", "2026-03-01", "2026-03-02"),
    "until": ("2026-03-01T13:00", "2026-03-01", "2026-02-01"),
    "at": ("2026-03-01T12:30",),
    "day": ("2026-03-01",),
    "to": ("2026-03-02", "2026-02-01"),
    "reason": ("because [/x]",),
    "actor": ("[/x]",),
    "bootstrap_servers": ("127.0.0.1:1",),
    "only": ("lake", "check"),
    "by": tuple(By),
    "protocol": ("classic", "consumer"),
    "reset_policy": tuple(ResetPolicy),
}


REPLACED: Final = (
    "evenlag.doctor.runner.run_lanes",
    "evenlag.publishing.hint_topic.read_hint_topic",
    "evenlag.publishing.revocation.withdraw_hint",
    "evenlag.publishing.revocation.stop_all",
    "evenlag.publishing.revocation.resume",
    "evenlag.publishing.publish.publish_hints",
    "evenlag.publishing.approvals.record_answer",
    "os.execve",
    "evenlag.cli.job_runner.run_job",
    "evenlag.cli.lag._show_once",
    "evenlag.cli.lag._watch",
    "evenlag.overview.server.listen",
)


class _ReachedError(JobError):
    """Raised in place of what a test must not start."""


@pytest.fixture(scope="module")
def hostile_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001  # it writes
    """Return a lake with everything in it, of a group whose name no terminal should obey."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "GROUP", GROUP)
        return written.write_lake(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def folder(hostile_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Change to a folder with files of each kind; commands that run in it can reach no other machine."""
    made = tmp_path_factory.mktemp("fuzz")
    (made / "policy.yaml").write_text(POLICY.format(lake=hostile_lake), encoding="utf-8")
    (made / "problem.json").write_text(json.dumps(PROBLEM), encoding="utf-8")
    (made / "folder").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # Made for each call, the tree costs more than most calls.
        patch.setattr("typer.testing._get_command", lambda _: COMMAND)
        patch.chdir(made)
        for name in [name for name in os.environ if name.startswith("EVENLAG_")]:
            patch.delenv(name)
        # A module that is imported later would keep a function that is replaced only for these tests.
        for place in REPLACED:
            import_module(place.rpartition(".")[0])
        for place in REPLACED:
            patch.setattr(place, _reach)
        patch.setattr(socket.socket, "connect", _no_connection)
        # Its pictures take a second each; tests/evenlag/report looks at the page.
        patch.setattr("evenlag.report.page.report_page", lambda shown: shown.group_id)
        yield made


def _reach(*_: Any, **__: Any) -> Any:
    raise _ReachedError("all that comes before was valid")


def _no_connection(*_: Any) -> None:
    raise BaseException("a command reached for the network")  # noqa: TRY002  # nothing may catch it


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, each in below.items():
        yield from _leaves(each, (*path, name))


COMMAND: Final = typer.main.get_command(app)
LEAVES: Final = dict(_leaves(COMMAND))


def _is_harmless(value: str) -> bool:
    """Whether a value, taken for a path, stays in the test's folder, and for a URI, on this machine."""
    return not value.startswith("/") and ".." not in value and "://" not in value


_HOSTILE: Final = st.one_of(
    st.sampled_from(_TEXTS),
    st.sampled_from(_NUMBERS),
    st.sampled_from(_MOMENTS),
    st.text(max_size=20),
    st.floats().map(str),
    st.integers().map(str),
    st.datetimes().map(lambda at: at.isoformat()),
).filter(lambda value: _is_harmless(value) or value.startswith("/["))


def _valid(parameter: Any, lake: Path) -> st.SearchStrategy[str] | None:
    if parameter.name == "lake":
        return st.just(str(lake))
    known = _VALID.get(parameter.name)
    return None if known is None else st.sampled_from(known)


@st.composite
def _calls(draw: st.DrawFn, path: tuple[str, ...], lake: Path) -> list[str]:
    """The words of a call: at least one parameter has a hostile value, if there is one that takes any."""
    options, arguments = [], []
    command = LEAVES[path]
    taking = [each for each in command.params if not getattr(each, "is_flag", False) and each.name != "help"]
    hostile = set(draw(st.lists(st.sampled_from(taking), min_size=1, max_size=2))) if taking else set()
    for parameter in command.params:
        if parameter not in taking:
            names = [*parameter.opts, *parameter.secondary_opts]
            if parameter.name != "help" and draw(st.integers(0, 2)) == 0:
                options.append(draw(st.sampled_from(names)))
            continue
        valid = _valid(parameter, lake)
        if parameter in hostile:
            value = draw(_HOSTILE)
        elif valid is not None and (parameter.required or parameter.name == "lake" or draw(st.booleans())):
            value = draw(valid)
        else:
            continue
        if parameter.opts[0].startswith("-"):
            options += [draw(st.sampled_from(parameter.opts)), str(value)]
        else:
            arguments.append(value)
    # `plans X` is `plans show X`.
    words = path[:-1] if path[-1] == "show" and draw(st.booleans()) else path
    return [*words, *options, *(["--"] if draw(st.booleans()) and arguments else []), *arguments]


def _extremes(parameter: Any) -> tuple[str, ...]:
    """The values that end a calendar or a number's range, for a parameter that takes one."""
    names = {parameter.name, parameter.metavar}
    if names & {"INTEGER", "NUMBER", "SECONDS"} or getattr(parameter, "min", None) is not None:
        return _NUMBERS
    return _MOMENTS if names & {"MOMENT", "DAY", "FROM", "TO"} else ()


def _plainest(path: tuple[str, ...], lake: Path, chosen: Any, value: str) -> list[str]:
    """A call in which all is valid but one value."""
    options, arguments = [], []
    for parameter in LEAVES[path].params:
        if parameter is chosen:
            shown = value
        elif parameter.name == "lake":
            shown = str(lake)
        elif parameter.required:
            shown = str(_VALID.get(parameter.name, ("x",))[0])
        else:
            continue
        if parameter.opts[0].startswith("-"):
            options.append(f"{parameter.opts[0]}={shown}")
        else:
            arguments.append(shown)
    return [*path, *options, "--", *arguments]


def _refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def check(words: list[str], stdin: bytes = b"") -> Result:
    """Call the command, and hold what it did to what is promised of all commands."""
    result = CliRunner().invoke(app, words, input=stdin)
    message = f"{words!a}: {result.exit_code}\n{result.output!a}"
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        f"{words!a}: {result.exception!r}"
    )
    assert result.exit_code in EXIT_CODES, message
    assert "Traceback" not in result.output, message
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", result.output.replace("\r", "")), message
    errors = re.findall("^error: ", result.stderr, re.MULTILINE)
    if result.exit_code == 0:
        assert not errors, message
        if "--json" in words and "--jsonl" not in words:
            json.loads(result.stdout, parse_constant=_refuse)
    elif result.exit_code == 1 and result.stdout:
        assert len(errors) <= 1, message  # doctor and assign answer what is not well on standard output
    else:
        assert len(errors) == 1 or "╭─ Error" in result.stderr or "Usage:" in result.stdout, message
        assert not (errors and result.exit_code == 2 and len(result.stderr.splitlines()) > 9), message
    return result


def _fuzz(path: tuple[str, ...], folder: Path, lake: Path, examples: int) -> None:
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,) if examples == _FEW else (Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(_calls(path, lake), st.binary(max_size=64))
    def call(words: list[str], content: bytes) -> None:
        (folder / "bytes").write_bytes(content)
        check(words, content)

    call()


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_no_call_ends_in_a_traceback(path: tuple[str, ...], folder: Path, hostile_lake: Path) -> None:
    _fuzz(path, folder, hostile_lake, _FEW)


@pytest.mark.extended
@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
@pytest.mark.usefixtures("folder")
def test_no_extreme_of_a_number_or_moment_ends_in_a_traceback(
    path: tuple[str, ...], hostile_lake: Path
) -> None:
    for parameter in LEAVES[path].params:
        for value in _extremes(parameter):
            check(_plainest(path, hostile_lake, parameter, value))


@pytest.mark.soak
@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_no_call_of_many_ends_in_a_traceback(path: tuple[str, ...], folder: Path, hostile_lake: Path) -> None:
    _fuzz(path, folder, hostile_lake, _MANY)


@given(
    content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
@settings(
    max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
def test_no_file_taken_for_a_policy_or_problem_ends_in_a_traceback(folder: Path, content: bytes) -> None:
    (folder / "bytes").write_bytes(content)
    assert check(["policy", "check", "bytes"]).exit_code == 2
    assert check(["assign", "bytes"]).exit_code == 1
    check(["assign", "--jsonl", "-"], content)
