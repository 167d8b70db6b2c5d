"""Small data files of an object store in memory: each is read once, by one request, as none ever changes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import pyarrow as pa

_SMALL_BYTES: Final = 256 * 1024
_MAX_BYTES: Final = 64 * 1024 * 1024
_KEPT: Final[OrderedDict[tuple[str, str], bytes]] = OrderedDict()
_LOCK: Final = threading.Lock()
# The copy of a lock that another thread holds at a fork would never be released in the child.
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@cache
def storage_handler() -> Any:
    """Return the class of file systems of a table's folder, by its address and the sizes of its files."""
    from deltalake.fs import DeltaStorageHandler

    class SmallFiles(DeltaStorageHandler):
        def __init__(self, folder: str, sizes: Mapping[str, int]) -> None:
            super().__init__(folder, known_sizes=dict(sizes))
            self._folder, self._small = folder, {p for p, size in sizes.items() if size <= _SMALL_BYTES}

        def open_input_file(self, path: str) -> Any:
            if path not in self._small:
                return super().open_input_file(path)
            key = self._folder, path
            with _LOCK:
                content = _KEPT.get(key)
            if content is None:
                content = super().open_input_file(path).read()
                _keep(key, content)
            return pa.BufferReader(content)

    return SmallFiles


def forget_files() -> None:
    """Release all of them."""
    with _LOCK:
        _KEPT.clear()


def _keep(key: tuple[str, str], content: bytes) -> None:
    with _LOCK:
        _KEPT[key] = content
        num_bytes = sum(map(len, _KEPT.values()))
        while num_bytes > _MAX_BYTES:
            num_bytes -= len(_KEPT.popitem(last=False)[1])
