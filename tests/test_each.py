"""A test of many cases fails with all that fail, and with nothing to check it is no test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.each import for_each

if TYPE_CHECKING:
    from pathlib import Path


def test_all_cases_that_fail_are_told_with_why() -> None:
    @for_each([1, 2, 3, 4])
    def check(number: int) -> list[str]:
        assert number != 2, "two"
        if number == 3:
            pytest.fail("three")
        return ["four"] if number == 4 else []

    with pytest.raises(AssertionError) as error:
        check()
    lines = str(error.value).splitlines()
    assert lines[0] == "3 of 4 cases fail"
    assert [line for line in lines if line.startswith(("2: two", "3: three", "4: ['four']"))] == lines[
        1:2
    ] + lines[-2:]


def test_an_unexpected_error_names_its_case() -> None:
    @for_each([0])
    def check(number: int) -> None:
        1 / number  # it raises

    with pytest.raises(ZeroDivisionError) as error:
        check()
    assert error.value.__notes__ == ["in the case 0"]


def test_without_cases_there_is_no_test() -> None:
    with pytest.raises(AssertionError, match="nothing would be checked"):
        for_each([])


@for_each(["a", "b"])
def test_a_check_may_have_fixtures(name: str, tmp_path: Path) -> None:
    assert not (tmp_path / name).exists()
