"""Where the tables of a lake are, by its root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.errors import UsageError
from evenlag.lake.location import LakePaths
from evenlag.lake.tables import OFFSETS

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_uri_is_the_folder_that_it_names(tmp_path: Path) -> None:
    paths = LakePaths((tmp_path / "a lake").as_uri())
    assert paths.is_local
    assert paths.table(OFFSETS) == str(tmp_path / "a lake" / "offsets")
    elsewhere = LakePaths("s3a://bucket/lake/")
    assert not elsewhere.is_local
    assert elsewhere.table(OFFSETS) == "s3a://bucket/lake/offsets"


def test_a_lake_s_folder_is_created_or_refused_with_what_to_change(tmp_path: Path) -> None:
    LakePaths(str(tmp_path / "a" / "lake")).make_root()
    assert (tmp_path / "a" / "lake").stat().st_mode & 0o077 == 0
    (tmp_path / "file").write_text("", encoding="utf-8")
    for root in ("/proc/nope", str(tmp_path / "file"), str(tmp_path / "file" / "lake")):
        with pytest.raises(UsageError, match=r"cannot be created: .*; name another folder with --lake"):
            LakePaths(root).make_root()
    LakePaths("s3a://bucket/lake").make_root()
