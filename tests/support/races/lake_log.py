"""Rows of a Delta table as its log's JSON and its Parquet files have them, on a disk or an S3 server.

It shares no code with what writes the table. It reads all commits from the first one, and no checkpoint.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import unquote, urlparse

# The environment of deltalake's storage, and what Arrow calls the same.
_S3_OPTIONS = {
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint_override",
}


def read_rows(root: str, table: str) -> list[dict[str, Any]]:
    """Return all rows of a table, without the values of its partition columns."""
    import pyarrow.parquet as pq

    filesystem, folder = open_root(root)
    rows: list[dict[str, Any]] = []
    live: set[str] = set()
    for action in read_actions(root, table):
        if "add" in action:
            live.add(action["add"]["path"])
        elif "remove" in action:
            live.discard(action["remove"]["path"])
    for path in sorted(live):
        with filesystem.open_input_file(f"{folder}/{table}/{unquote(path)}") as file:
            rows += pq.ParquetFile(file).read().to_pylist()
    return rows


def read_actions(root: str, table: str) -> list[dict[str, Any]]:
    """Return all actions of a table's log, in the order of its commits."""
    import pyarrow.fs as pa_fs

    filesystem, folder = open_root(root)
    log = f"{folder}/{table}/_delta_log"
    found = filesystem.get_file_info(pa_fs.FileSelector(log, allow_not_found=True))
    commits = sorted(info.path for info in found if info.extension == "json")
    actions: list[dict[str, Any]] = []
    for number, path in enumerate(commits):
        assert path.endswith(f"{number:020d}.json"), f"{path} is not commit {number}"
        with filesystem.open_input_stream(path) as stream:
            actions += [json.loads(line) for line in stream.read().decode().split("\n") if line]
    return actions


def open_root(root: str) -> tuple[Any, str]:
    """Return Arrow's file system of a lake, and the lake's path in it."""
    import pyarrow.fs as pa_fs

    parsed = urlparse(root)
    if parsed.scheme in {"s3", "s3a"}:
        options = {
            name: os.environ[variable] for variable, name in _S3_OPTIONS.items() if variable in os.environ
        }
        return pa_fs.S3FileSystem(**options), f"{parsed.netloc}{parsed.path}".rstrip("/")
    return pa_fs.LocalFileSystem(), parsed.path
