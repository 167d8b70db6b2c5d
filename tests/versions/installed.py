"""What installed distributions require, by their own metadata: standard library and packaging only.

``python tests/versions/installed.py apache-airflow`` prints pins of that distribution and of all that it
needs, one a line, in the form of Airflow's constraints. It runs in any environment.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable


def pins(roots: Iterable[str]) -> dict[str, str]:
    """Return the installed version of distributions and of all that they require, by canonical name."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    pending = [Requirement(root) for root in roots]
    while pending:
        wanted = pending.pop()
        name = str(canonicalize_name(wanted.name))
        key = (name, frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
        for line in requires(name) or ():
            needed = Requirement(line)
            extras = ("", *wanted.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                pending.append(needed)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    for name, found in pins(sys.argv[1:]).items():
        sys.stdout.write(f"{name}=={found}\n")
