"""What tests the benchmarks is left to ``make test-all``: nothing of the product is in them.

But for the smallest form of the field's simulation, in which the product plans.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_SIMULATION = Path(__file__).parent / "field" / "test_simulate.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path != _SIMULATION:
            item.add_marker("extended")
