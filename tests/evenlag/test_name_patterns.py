"""Patterns that name groups: exact names, globs, and regular expressions that no name can slow down."""

from __future__ import annotations

import pytest

from evenlag.name_patterns import check_pattern, matches_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("payments", "payments", True),
        ("payments", "payments-eu", False),
        ("payments-*", "payments-eu", True),
        ("Payments-*", "payments-eu", False),
        ("/payments-[0-9]+/", "payments-17", True),
        ("/payments-[0-9]+/", "payments-17x", False),
        ("/zahlung.*/", "zahlungsströme", True),
        ("/.*/", "", True),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern: str, name: str, *, matches: bool) -> None:
    assert matches_pattern(check_pattern(pattern), name) is matches


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|aa)+c", "(.*a){20}", "(a?){40}a{40}c"])
def test_no_name_makes_an_expression_slow(expression: str) -> None:
    """Python's own engine would take from 13 s on 31 characters to the age of the universe."""
    assert not matches_pattern(f"/{expression}/", "a" * 10_000 + "!")


@pytest.mark.parametrize("expression", ["(", "a{2,1}", "(?=a)b", r"(a)\1", "[z-a]", "\ud800"])
def test_an_expression_that_is_none_is_told_in_one_line(
    expression: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="is not a regular expression") as caught:
        check_pattern(f"/{expression}/")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
