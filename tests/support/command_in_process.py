"""Runs the command in this process: comparisons of its output with the lake call it hundreds of times."""

import io
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from subprocess import CompletedProcess
from typing import Any, Final

from evenlag.cli.console import wide_output

# Wide enough that no table cell wraps: each row is one line of text.
_WIDTH: Final = 4_000


def run_in_process(arguments: Sequence[str]) -> CompletedProcess[str]:
    """Run the command with these arguments (without its name)."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with wide_output(_WIDTH), redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            _command().main(args=list(arguments), prog_name="evenlag")
            exit_code = 0
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except Exception:  # noqa: BLE001  # as the interpreter does at the end of a process
            traceback.print_exc()
            exit_code = 1
    return CompletedProcess(arguments, exit_code, stdout.getvalue(), stderr.getvalue())


@cache
def _command() -> Any:
    """The Typer command tree; building it takes longer than a small query."""
    from typer.main import get_command

    from evenlag.cli.app import app

    return get_command(app)
