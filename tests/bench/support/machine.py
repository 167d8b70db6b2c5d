"""What figures were measured with."""

from __future__ import annotations

import os
from typing import Any

from tests.bench.field.results import used_versions


def this_machine(*distributions: str) -> dict[str, Any]:
    """Return the number of CPUs, and the versions of Python and of distributions."""
    return {"cpus": os.cpu_count(), **used_versions(*distributions)}
