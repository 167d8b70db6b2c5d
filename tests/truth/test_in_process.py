"""Running the command in a process gives what a process of its own gives."""

from __future__ import annotations

from tests.support.command_in_process import run_in_process


def test_an_answer_and_a_mistake_have_their_exit_codes_and_streams() -> None:
    done = run_in_process(["--version"])
    mistake = run_in_process(["lag", "--lake", "/does/not/exist"])
    misuse = run_in_process(["lag", "--no-such-option"])

    assert done.returncode == 0
    assert done.stdout.startswith("evenlag ")
    assert (mistake.returncode, mistake.stdout) == (4, "")
    assert mistake.stderr.startswith("error: ")
    assert misuse.returncode == 2
    assert "--no-such-option" in misuse.stderr
