"""Rows that deltalake may write without waiting for where they come from.

Its threads for object stores consume the rows of a write. If they came from deltalake's reads, or from what
such a read holds up, they would never come once writes occupy all of these threads: each core has one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def rows_on_disk(schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatchReader]:
    """Read all rows, to a temporary file, and provide them again: no memory, no other threads are needed."""
    with tempfile.TemporaryFile() as file:
        to = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with pa.ipc.new_stream(file, schema, options=to) as stream:
            for batch in rows:
                stream.write_batch(batch)
        file.seek(0)
        yield pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(use_threads=False))
