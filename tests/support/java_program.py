"""A Java program that is kept running: questions go in and answers come out, line by line."""

from __future__ import annotations

import json
import subprocess
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class JavaProgram:
    """A context manager around the program, at whose end it is killed.

    environ: All variables of its environment, if not those of this process.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environ,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        self._process.communicate()

    def stop(self) -> None:
        """End the program at once; who waits for an answer fails."""
        self._process.kill()

    def _tell(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    @property
    def _answers(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout


class JsonProgram(JavaProgram):
    """A program that takes and answers a JSON object a line."""

    def ask(self, op: str, **question: Any) -> dict[str, Any]:
        """Return the answer; an error of Java's is one here."""
        self._tell(json.dumps({"op": op, **question}))
        answer: dict[str, Any] = json.loads(self._answers.readline())
        if answer.get("error"):
            raise RuntimeError(answer["error"])
        return answer
