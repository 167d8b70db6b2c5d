"""Verification of the jars that a start puts on a class path.

The lists ``sandbox/*.sha256`` record the SHA-256 of every jar that is downloaded. A jar that no list names,
which evenlag built or its user added, must be safe from other users instead. Hashes are kept in a private
folder by inode, change time and size, so that a start does not read what has not changed.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from evenlag.bundle import bundle_root
from evenlag.errors import JarError
from evenlag.private_files import is_safe_from_others, private_folder

_FILE: Final = "jar_hashes.json"
# A mapped page that is dirty can be written without a new change time until the kernel has written it back,
# after half a minute by default: the hash of a file that was changed lately is not kept.
_SETTLED_NS: Final = 120 * 10**9


@cache
def recorded_hashes(which: str) -> dict[str, str]:
    """Return the SHA-256 by jar (``FOLDER/FILE``) of the list ``sandbox/<which>.sha256``, sorted by name."""
    lines = (bundle_root() / "sandbox" / f"{which}.sha256").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


@cache
def _hashes_by_file_name() -> dict[str, str]:
    lists = sorted((bundle_root() / "sandbox").glob("*.sha256"))
    return {name.rpartition("/")[2]: sha for one in lists for name, sha in recorded_hashes(one.stem).items()}


def verify_jars(jars: Iterable[str | Path]) -> None:
    """Verify jars before they are put on a class path."""
    folder = private_folder()
    known = _read_hashes(folder)
    fresh: dict[str, list[Any]] = {}
    for jar in map(Path, jars):
        expected = _hashes_by_file_name().get(jar.name)
        if expected is None and is_safe_from_others(jar):
            continue
        digest = _digest(jar, known, fresh)
        if expected is None and digest not in _hashes_by_file_name().values():
            raise JarError(
                f"{jar} is on no list of evenlag's jars, and other users may write it or its folder: let "
                "this user or root own both, without write access for others (chmod go-w), or remove it"
            )
        if expected not in (None, digest):
            raise JarError(
                f"{jar} has SHA-256 {digest}, not {expected} as recorded: somebody has changed it. Find out "
                "who, and remove it; make setup, or the next job with a Spark of its own, fetches it again"
            )
    if folder is not None and fresh:
        _write_hashes(folder, known | fresh)


def _digest(jar: Path, known: dict[str, list[Any]], fresh: dict[str, list[Any]]) -> str:
    now = time.time_ns()
    try:
        path = str(jar.resolve(strict=True))
        with open(path, "rb") as handle:  # noqa: PTH123  # a resolved name
            status = os.fstat(handle.fileno())
            state = [status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size]
            if path in known and known[path][:-1] == state:
                return str(known[path][-1])
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
    except (OSError, RuntimeError) as error:
        raise JarError(f"{jar} cannot be read: {error}") from error
    if now - status.st_ctime_ns > _SETTLED_NS:
        fresh[path] = [*state, digest]
    return digest


def _read_hashes(folder: Path | None) -> dict[str, list[Any]]:
    if folder is None:
        return {}
    try:
        found: dict[str, list[Any]] = json.loads((folder / _FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def _write_hashes(folder: Path, hashes: dict[str, list[Any]]) -> None:
    unfinished = folder / f"{_FILE}.{os.getpid()}"
    try:
        unfinished.write_text(json.dumps({path: one for path, one in hashes.items() if Path(path).is_file()}))
        unfinished.replace(folder / _FILE)
    except OSError:
        # Without it the next start hashes again.
        unfinished.unlink(missing_ok=True)
