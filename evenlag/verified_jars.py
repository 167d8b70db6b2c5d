"""Verification of the jars that a start puts on a class path.

The lists ``sandbox/*.sha256`` record the SHA-256 of every jar that is downloaded. A jar that no list names,
which evenlag built or its user added, must be safe from other users instead.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from evenlag.bundle import bundle_root
from evenlag.errors import JarError
from evenlag.private_files import is_safe_from_others


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
    for jar in map(Path, jars):
        expected = _hashes_by_file_name().get(jar.name)
        if expected is None and is_safe_from_others(jar):
            continue
        digest = _digest(jar)
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


def _digest(jar: Path) -> str:
    try:
        with jar.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise JarError(f"{jar} cannot be read: {error}") from error
