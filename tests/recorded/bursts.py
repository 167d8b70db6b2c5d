"""Read the two groups that were recorded while they were behind in bursts (`tests.recorded.record_bursts`).

Snapshots are as the product's reader saw them each ten seconds. `seconds` is what a plain admin client read
each second: the truth between the snapshots.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER: Final = Path(__file__).resolve().parent / "bursts"
CLUSTER: Final = "recorded"
PAYMENTS: Final = "payments"
REFUNDS: Final = "refunds"


def read(name: str) -> pa.Table:
    """Return ``lag``, ``members``, ``snapshots`` or ``seconds``."""
    import pyarrow.parquet as pq

    return pq.read_table(FOLDER / f"{name}.parquet")
