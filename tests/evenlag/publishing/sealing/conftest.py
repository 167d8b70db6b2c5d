"""The key of the sealed lakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sealing.sealed_lake import KEY, VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def key() -> Iterator[None]:
    """The policy's key, in the environment of a module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, KEY)
        yield
