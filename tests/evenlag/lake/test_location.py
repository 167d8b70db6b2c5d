"""Where the tables of a lake are, by its root."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
