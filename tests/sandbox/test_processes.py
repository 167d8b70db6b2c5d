"""Child processes end with their parent, also when it is killed, and take what they started with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.jars import broker_classpath, cache_dir
from sandbox.java_tools import JarsError, java_command
from sandbox.processes import free_ports, kill_process, start_process, stop_process
from tests.support.waiting import wait_until

PARENT = """
import sys
from sandbox.processes import start_process
child = start_process(["sleep", "600"], log=open(sys.argv[1], "wb"))
print(child.pid, flush=True)
sys.stdin.read()
"""


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    # A killed process that nobody has waited for yet still has its number.
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    wait_until(lambda: not is_alive(pid))


def test_a_stopped_process_takes_its_children_along_even_when_paused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = start_process(["sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait; wait"], log=file)
    grandchild = int(wait_until(lambda: log.read_text(encoding="ascii").strip()))
    assert stop_process(process, timeout_s=0.2) != 0
    wait_until(lambda: not is_alive(grandchild))
    assert kill_process(process) == process.returncode


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert max(ports) < 32_768


def test_a_missing_java_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("EVENLAG_JARS", str(tmp_path / "jars"))
    with pytest.raises(JarsError, match="version 17"):
        java_command()
    with pytest.raises(JarsError, match="JAVA_HOME"):
        broker_classpath()


def test_the_jars_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENLAG_JARS", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("EVENLAG_JARS")
    assert cache_dir().parts[-2:] == (".cache", "jars")
