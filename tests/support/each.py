"""One test for many like cases, which fails with all that fail: pytest's own parameters cost a case each."""

from __future__ import annotations

from inspect import Signature, signature
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_Case = TypeVar("_Case")


def for_each(
    cases: Iterable[_Case], name: Callable[[_Case], str] = str
) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Make one test of a check of each case. The check asserts, or returns what is wrong.

    Parameters of the check after the case are fixtures.
    """
    all_cases = list(cases)
    assert all_cases, "nothing would be checked"

    def decorate(check: Callable[..., object]) -> Callable[..., None]:
        def test(**fixtures: object) -> None:
            failed = []
            for case in all_cases:
                try:
                    wrong = check(case, **fixtures)
                except (AssertionError, pytest.fail.Exception) as error:
                    wrong = str(error) or repr(error)
                except Exception as error:
                    error.add_note(f"in the case {name(case)}")
                    raise
                if wrong:
                    failed.append(f"{name(case)}: {wrong}")
            assert not failed, "\n".join([f"{len(failed)} of {len(all_cases)} cases fail", *failed])

        test.__doc__ = check.__doc__
        test.__signature__ = Signature([*signature(check).parameters.values()][1:])  # type: ignore[attr-defined]  # pytest reads it
        return test

    return decorate
