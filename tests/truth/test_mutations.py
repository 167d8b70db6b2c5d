"""The list of mutations fits the code that it is to break."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.truth.mutate import MIN_MUTATIONS, ROOT, WANTED, applied, misfits
from tests.truth.mutation import Mutation
from tests.truth.mutations import MUTATIONS

if TYPE_CHECKING:
    from pathlib import Path


def test_there_are_enough_and_each_fits_exactly_once() -> None:
    assert len(MUTATIONS) >= MIN_MUTATIONS
    assert misfits(ROOT, MUTATIONS) == []


def test_names_are_unique_and_kinds_are_many() -> None:
    assert max(Counter(each.name for each in MUTATIONS).values()) == 1
    assert len({each.kind for each in MUTATIONS}) >= 8
    assert float(WANTED) == 28 / 30


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_what_a_mutation_makes_is_python(mutation: Mutation) -> None:
    source = (ROOT / mutation.file).read_text(encoding="utf-8")
    ast.parse(source.replace(mutation.old, mutation.new))


def test_a_tree_is_as_it_was_afterwards(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("old = 1\n")
    mutation = Mutation("a", "b", "a.py", "old", "new")

    with applied(tmp_path, mutation):
        assert (tmp_path / "a.py").read_text() == "new = 1\n"

    assert (tmp_path / "a.py").read_text() == "old = 1\n"
    assert misfits(tmp_path, [Mutation("a", "b", "a.py", "none", "x")])
