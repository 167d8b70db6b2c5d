"""The figures of the code's structure, and their limits: ``python -m tests.structure``.

It prints the lines of each package, the words of the docs, the rooms of ``spark_jobs`` (the modules and
sub-packages directly in it), the arrows between them (pairs of rooms of which one imports from the other)
and import cycles, and ends with 1 when a figure is over its limit. Lazy imports count like any other. An
import under ``TYPE_CHECKING`` never runs, but it shows what a module knows, so it counts too.
"""

from __future__ import annotations

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grimp import ImportGraph

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = (
    "assignor_core",
    "evenlag",
    "spark_jobs",
    "dags",
    "sandbox",
    "release",
    "examples",
    "tests",
)
PRODUCT: Final = PACKAGES[:6]
_PARTS_WITHOUT_PAGES: Final = frozenset({".venv", ".cache", ".pytest_cache", ".git", "dist", "node_modules"})


class Figure(NamedTuple):
    """A number and the largest that it may be."""

    name: str
    number: int
    limit: int


class Size(NamedTuple):
    """Lines of Python files, and those of them that are code: no docstring, no comment, not blank."""

    lines: int
    code: int


def measure() -> list[Figure]:
    """Read the tree and return its figures that have a limit."""
    import grimp

    graph = grimp.build_graph(PACKAGES[0], *PACKAGES[1:], cache_dir=None)
    rooms, arrows = rooms_and_arrows(graph, "spark_jobs")
    sizes = [package_size(package) for package in PRODUCT]
    return [
        Figure("lines of product Python", sum(size.lines for size in sizes), 69_000),
        Figure("lines of code in them", sum(size.code for size in sizes), 48_000),
        Figure("words of Markdown", count_words(), 90_000),
        Figure("rooms of spark_jobs", len(rooms), 15),
        Figure("arrows of spark_jobs", len(arrows), 35),
        Figure("import cycles", len(find_cycles(_imports(graph))), 0),
    ]


def package_size(package: str) -> Size:
    """Count the lines of a package."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / package).rglob("*.py")]
    return Size(sum(source.count("\n") for source in sources), sum(map(count_code, sources)))


def count_code(source: str) -> int:
    r"""Count the lines that are neither blank nor only comment or docstring.

    Examples
    --------
    >>> count_code("'A module.'\n\n# One.\nx = [\n\n2]  # two\n")
    2
    """
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    texts = ((number, line.strip()) for number, line in enumerate(source.splitlines(), 1))
    return sum(bool(text) and not text.startswith("#") and number not in docstrings for number, text in texts)


def count_words() -> int:
    """Count the words of all pages, the generated ones included."""
    pages = (page for page in ROOT.rglob("*.md") if not _PARTS_WITHOUT_PAGES & set(page.parts))
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def rooms_and_arrows(graph: ImportGraph, package: str) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Return what is directly in a package, and which of it imports from which."""
    rooms = graph.find_children(package)
    room_of = {module: room for room in rooms for module in (room, *graph.find_descendants(room))}
    arrows = {
        (room, room_of[imported])
        for module, room in room_of.items()
        for imported in graph.find_modules_directly_imported_by(module)
        if room_of.get(imported, room) != room
    }
    return frozenset(rooms), frozenset(arrows)


def find_cycles(imports: Mapping[str, set[str]]) -> tuple[tuple[str, ...], ...]:
    """Return cycles that together hold every module that is in one.

    Examples
    --------
    >>> find_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}})
    (('b', 'c', 'b'),)
    """
    left = {module: set(imported) for module, imported in imports.items()}
    found = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            # graphlib goes from an imported module to what imports it.
            cycle = tuple(reversed(error.args[1]))
            found.append(min(cycle[i:-1] + cycle[: i + 1] for i in range(len(cycle) - 1)))
            left[cycle[0]].discard(cycle[1])
        else:
            return tuple(found)


def _imports(graph: ImportGraph) -> dict[str, set[str]]:
    return {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}


def main() -> int:
    """Print the figures; return 1 when one is over its limit."""
    for package in PRODUCT:
        size = package_size(package)
        print(f"{package:30} {size.lines:7,} lines, {size.code:,} of them code")  # noqa: T201  # what it is for
    excesses = []
    for figure in measure():
        print(f"{figure.name:30} {figure.number:7,} of {figure.limit:,}")  # noqa: T201  # as above
        if figure.number > figure.limit:
            excesses.append(figure.name)
    if excesses:
        print(f"over the limit: {', '.join(excesses)}", file=sys.stderr)  # noqa: T201  # as above
    return 1 if excesses else 0


if __name__ == "__main__":
    raise SystemExit(main())
