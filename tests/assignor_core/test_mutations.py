"""Mutated records: nothing but hint errors, and whatever is accepted is canonical."""

from __future__ import annotations

from collections import Counter

from tests.support.records.mutations import ACCEPTED, mutated_records, verdict


def test_mutated_records_are_refused_or_sound() -> None:
    """A few; ``python -m tests.support.records.mutations`` takes any number."""
    verdicts = Counter((record.is_loads, verdict(record)) for record in mutated_records(8_000))
    for is_loads in (False, True):
        assert verdicts[is_loads, ACCEPTED] > 400
        assert verdicts[is_loads, "MALFORMED"] > 1_000
        assert verdicts[is_loads, "BAD_SIGNATURE"] > 100
        assert verdicts[is_loads, "FOREIGN"] > 0
        assert (verdicts[is_loads, "NEWER_FORMAT"] > 0) is not is_loads
    wanted = {ACCEPTED, "MALFORMED", "BAD_SIGNATURE", "FOREIGN", "NEWER_FORMAT"}
    assert {reason for _, reason in verdicts} == wanted
