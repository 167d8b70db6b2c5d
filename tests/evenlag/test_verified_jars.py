"""A jar is put on a class path only with the content that was recorded, or if no other user may write it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from evenlag import verified_jars
from evenlag.doctor.model import Verdict
from evenlag.doctor.spark_checks import spark_checks
from evenlag.errors import JarError
from evenlag.spark_installation import delta_jars
from evenlag.verified_jars import recorded_hashes, verify_jars
from sandbox.jars import broker_classpath, cache_dir, spark_jars
from sandbox.java_tools import JarsError
from tests.evenlag.doctor.verdicts import worst

DELTA = "io.delta_delta-storage-4.4.0.jar"


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of Delta's jars, as a copy that a test may change."""
    spark_jars()
    folder = tmp_path / "jars"
    shutil.copytree(cache_dir() / "spark", folder / "spark", copy_function=shutil.copy)
    (folder / "spark").chmod(0o755)
    monkeypatch.setenv("EVENLAG_JARS", str(folder))
    return folder / "spark"


def change(jar: Path) -> None:
    """Change a byte as somebody would who hides it: in place, with the same size and the same times."""
    before = jar.stat()
    with jar.open("r+b") as handle:
        handle.seek(before.st_size // 2)
        byte = handle.read(1)
        handle.seek(-1, os.SEEK_CUR)
        handle.write(bytes([byte[0] ^ 1]))
    os.utime(jar, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_the_lists_name_each_jar_by_one_content_only() -> None:
    recorded: dict[str, set[str]] = {}
    for one in (Path(verified_jars.__file__).parents[1] / "sandbox").glob("*.sha256"):
        for name, digest in recorded_hashes(one.stem).items():
            recorded.setdefault(Path(name).name, set()).add(digest)
    assert len(recorded) > 100
    assert {len(digests) for digests in recorded.values()} == {1}


def test_a_changed_jar_is_named_with_the_remedy(jars: Path) -> None:
    verify_jars(delta_jars())
    change(jars / DELTA)
    with pytest.raises(JarError, match=rf"{DELTA} has SHA-256 \w+, not \w+ as recorded.*remove it") as caught:
        verify_jars(delta_jars())
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["evenlag-log-store-0.1.0-abc.jar", "somebody-s-own-1.0.jar"])
@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "owner", "is_used"),
    [
        (0o644, 0o755, 0, True),
        (0o664, 0o755, 0, False),
        (0o646, 0o755, 0, False),
        (0o644, 0o775, 0, False),
        (0o644, 0o757, 0, False),
        (0o644, 0o755, 12_345, False),
    ],
)
def test_a_jar_on_no_list_is_used_if_no_other_user_may_write_it(
    jars: Path, name: str, file_mode: int, folder_mode: int, owner: int, is_used: bool
) -> None:
    jar = jars / name
    jar.write_bytes(b"built here")
    if owner:
        if os.geteuid() != 0:
            pytest.skip("only root gives files away")
        os.chown(jar, owner, -1)
    jar.chmod(file_mode)
    jars.chmod(folder_mode)
    if is_used:
        verify_jars([jar])
        return
    with pytest.raises(JarError, match=rf"{name} is on no list.*other users may write it.*chmod go-w"):
        verify_jars([jar])


def test_a_listed_jar_under_another_name_is_known_by_its_content(jars: Path) -> None:
    jars.chmod(0o777)
    (jars / DELTA).rename(jars / "delta-storage-4.4.0.jar")
    verify_jars([jars / "delta-storage-4.4.0.jar"])


def test_a_link_is_as_safe_as_its_folder_and_its_target(jars: Path, tmp_path: Path) -> None:
    jar = jars / "own.jar"
    jar.write_bytes(b"built here")
    folder = tmp_path / "links"
    folder.mkdir(mode=0o755)
    (folder / "own.jar").symlink_to(jar)
    verify_jars([folder / "own.jar"])
    jars.chmod(0o777)
    with pytest.raises(JarError):
        verify_jars([folder / "own.jar"])
    jars.chmod(0o755)
    folder.chmod(0o777)
    with pytest.raises(JarError):
        verify_jars([folder / "own.jar"])


def test_a_session_of_its_own_starts_with_verified_jars_only(jars: Path) -> None:
    from spark_jobs.runtime.classic_session import build_session

    change(jars / DELTA)
    with pytest.raises(JarError, match=DELTA):
        build_session("never started")


def test_the_sandbox_starts_with_verified_jars_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker_classpath()
    here = cache_dir()
    for folder in ("spark", "kafka"):
        (tmp_path / "jars" / folder).mkdir(parents=True)
        for jar in (here / folder).glob("*.jar"):
            (tmp_path / "jars" / folder / jar.name).symlink_to(jar)
    monkeypatch.setenv("EVENLAG_JARS", str(tmp_path / "jars"))
    spark_jars()
    for get in (broker_classpath, spark_jars):
        kind = "kafka" if get is broker_classpath else "spark"
        name = next(Path(jar).name for jar in recorded_hashes("jars") if jar.startswith(kind))
        spoilt = tmp_path / "jars" / kind / name
        spoilt.unlink()
        spoilt.write_bytes(b"something else")
        with pytest.raises(JarsError, match=name):
            get()


def test_doctor_names_a_changed_jar(jars: Path) -> None:
    [check] = [one for one in spark_checks({}) if one.name == "jars"]
    assert worst(check.look()) == "ok"
    change(jars / DELTA)
    [found] = check.look()
    assert found.verdict is Verdict.FAILED
    assert DELTA in found.message
