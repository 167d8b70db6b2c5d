"""A pattern that leaves out the hint topic matches the same other topics as it did before."""

from __future__ import annotations

import re

import pytest

from evenlag.consumer.consumer import _pattern_without


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("orders|hints", 0),
        (r"(?i)(?m)(Orders)|hints\Z", 0),
        ("orders | hints  # a comment", re.VERBOSE),
        ("(?x) orders  # (\n | hints  # b", 0),
        ("\n # (?m) a\n (?i)(?m) Orders | hints", re.VERBOSE),
        (" orders|#hints|hints", 0),
        ("(?i:ORDERS)|hints", 0),
    ],
)
def test_only_the_hint_topic_is_left_out(text: str, flags: int) -> None:
    given = re.compile(text, flags)
    found = _pattern_without("hints", given)
    assert given.match("hints")
    assert found.match("hints") is None
    for name in ("orders", "ORDERS", " orders", "hints2", "hint", "#hints", "#"):
        assert bool(found.match(name)) == bool(given.match(name)), name
