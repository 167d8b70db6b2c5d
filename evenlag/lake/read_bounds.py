"""How far back the reads of a cycle look, where no setting of the policy says it.

No read of a cycle grows with the age of the lake: it is bounded by day or time, or it reads the newest rows
of its kind by the files' statistics (:meth:`evenlag.lake.reader.LakeReader.read_newest`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

# What a repeat may still write has a time of this period: a step may be repeated for two days, and the clocks
# of two machines differ.
REPEATS: Final = timedelta(days=3)
# A published plan is settled and evaluated long before: a hint lives for a week at most, the horizon of its
# evaluation is a week at most.
OPEN_PLANS: Final = timedelta(days=31)
