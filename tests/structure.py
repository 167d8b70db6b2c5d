"""The figures of the code's structure, and their limits: ``python -m tests.structure``.

It prints the rooms of ``spark_jobs`` (the modules and sub-packages directly in it), the arrows between them
(pairs of rooms of which one imports from the other), import cycles, the largest folders and the longest
modules, and ends with 1 when a figure is over its limit. Lazy imports count like any other. An import under
``TYPE_CHECKING`` never runs, but it shows what a module knows, so it counts too.
"""

from __future__ import annotations

import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
FOLDERS: Final = (*PACKAGES, "docker")
MAX_ROOMS: Final = 15
MAX_ARROWS: Final = 35
_NUM_SHOWN: Final = 5


class Structure(NamedTuple):
    """The figures of a tree.

    rooms: The modules and sub-packages directly in ``spark_jobs``.
    arrows: (importing room, imported room), each pair once.
    cycles: Modules that import each other in a circle, the first also as the last.
    modules: How many modules are side by side in a folder, without its ``__init__``, by the folder's path.
    lines: How many lines a module has, by its path.
    """

    rooms: frozenset[str]
    arrows: frozenset[tuple[str, str]]
    cycles: tuple[tuple[str, ...], ...]
    modules: dict[str, int]
    lines: dict[str, int]

    def excesses(self) -> list[str]:
        """Return what is over its limit, one sentence each."""
        return [
            *([f"spark_jobs: {len(self.rooms)} rooms"] if len(self.rooms) > MAX_ROOMS else ()),
            *([f"spark_jobs: {len(self.arrows)} arrows"] if len(self.arrows) > MAX_ARROWS else ()),
            *(f"import cycle: {' → '.join(cycle)}" for cycle in self.cycles),
        ]


def measure() -> Structure:
    """Read the tree and return its figures."""
    import grimp

    graph = grimp.build_graph(PACKAGES[0], *PACKAGES[1:], cache_dir=None)
    rooms, arrows = rooms_and_arrows(graph, "spark_jobs")
    lines = dict(_count_lines())
    modules = Counter(str(Path(path).parent) for path in lines if Path(path).name != "__init__.py")
    return Structure(rooms, arrows, find_cycles(_imports(graph)), dict(modules), lines)


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


def _count_lines() -> Iterator[tuple[str, int]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), len(path.read_text(encoding="utf-8").splitlines())


def _table(structure: Structure) -> Iterator[str]:
    yield f"spark_jobs: rooms              {len(structure.rooms):4}  of {MAX_ROOMS}"
    yield f"spark_jobs: arrows             {len(structure.arrows):4}  of {MAX_ARROWS}"
    yield f"import cycles                  {len(structure.cycles):4}  of 0"
    for name, counts in (("modules side by side", structure.modules), ("lines of a module", structure.lines)):
        for path, number in Counter(counts).most_common(_NUM_SHOWN):
            yield f"{name:30} {number:4}  {path}"


def main() -> int:
    """Print the figures; return 1 when one is over its limit."""
    structure = measure()
    print("\n".join(_table(structure)))  # noqa: T201  # what it is for
    excesses = structure.excesses()
    if excesses:
        print("\n".join(("", "over the limit:", *excesses)), file=sys.stderr)  # noqa: T201  # as above
    return 1 if excesses else 0


if __name__ == "__main__":
    raise SystemExit(main())
