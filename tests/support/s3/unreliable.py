"""A proxy that refuses some requests to an S3 server and loses some answers, and can refuse all."""

from __future__ import annotations

import random
from typing import Final

from tests.support.s3.lost_answers import LosingProxy

# Shares of the requests.
_REFUSED: Final = 0.05
_LOST: Final = 0.005


class UnreliableProxy(LosingProxy):
    """Refuses 5 % of the requests with 503 and loses 0.5 % of the answers; while `is_out`, it refuses all.

    num_refused, num_lost: How many requests were refused, outages left out, and how many answers were lost.
    """

    def __init__(self, endpoint: str, seed: int) -> None:
        super().__init__(endpoint)
        self.is_out = False
        self.num_refused = self.num_lost = 0
        self._chance = random.Random(seed)  # noqa: S311  # repeatable, no secret

    def is_refused(self) -> bool:
        """Whether a request is refused."""
        with self._lock:
            if self.is_out:
                return True
            is_refused = self._chance.random() < _REFUSED
            self.num_refused += is_refused
        return is_refused

    def is_lost(self, *_: str) -> bool:
        """Whether the answer to a request is lost."""
        with self._lock:
            is_lost = self._chance.random() < _LOST
            self.num_lost += is_lost
        return is_lost
