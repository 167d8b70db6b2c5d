"""Archives that have the same bytes whenever and wherever they are written."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING, Final

from release.errors import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_EXECUTABLE: Final = 0o755
_PLAIN: Final = 0o644


def write_archive(path: Path, root: Path, names: Iterable[str], *, epoch: int) -> None:
    """Write a ``.tar.gz`` with files of a tree, sorted, owned by nobody in particular."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted({file for given in names for file in _files(root, given)}):
            data = (root / name).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), epoch
            entry.mode = _EXECUTABLE if (root / name).stat().st_mode & 0o100 else _PLAIN
            archive.addfile(entry, io.BytesIO(data))
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=epoch) as packed:
        packed.write(content.getvalue())


def _files(root: Path, name: str) -> Iterator[str]:
    path = root / name
    if path.is_file():
        yield name
    elif path.is_dir():
        yield from (file.relative_to(root).as_posix() for file in path.rglob("*") if file.is_file())
    else:
        raise ReleaseError(f"{name} does not exist in the source: an image cannot be built from it")
