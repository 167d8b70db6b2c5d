"""The licences of what is installed and shipped, and the check that each one is allowed.

The packages' own metadata name them: an SPDX expression in new ones, a classifier or a text in others.
``licences.toml`` has the rules, the exceptions with their reasons, and what the metadata do not say.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).with_name("licences.toml")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of ``licences.toml``: SPDX identifiers that are allowed, and expressions by what has them.

    exceptions: By package: the expression that it may have, and why.
    recorded: Expressions by package, in place of its metadata.
    jars: Expressions by ``group:artifact``.
    """

    allowed: frozenset[str]
    exceptions: Mapping[str, Mapping[str, str]]
    recorded: Mapping[str, str]
    jars: Mapping[str, str]
    classifiers: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    def problem(self, name: str, licence: str | None) -> str | None:
        """Return why a component may not be shipped; None if it may."""
        if licence is None:
            return f"{name}: no licence in its metadata; look it up, and record it in release/licences.toml"
        if self.exceptions.get(name, {}).get("licence") == licence or self._is_allowed(licence):
            return None
        return (
            f"{name}: {licence} is not allowed; use another package, or add an exception with its reason to "
            "release/licences.toml"
        )

    def _is_allowed(self, expression: str) -> bool:
        if "(" in expression:
            # No package has nested expressions: one that gets them is looked at.
            return expression in self.allowed
        return any(
            all(part.strip() in self.allowed for part in choice.split(" AND "))
            for choice in expression.split(" OR ")
        )


@cache
def read_rules() -> Rules:
    """Read the rules."""
    tree: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return Rules(**tree | {"allowed": frozenset(tree["allowed"])})


def package_licences(names: Iterable[str], rules: Rules) -> dict[str, str | None]:
    """Return the licences of packages; None where it is not known."""
    return {name: rules.recorded.get(name) or _of_metadata(name, rules) for name in names}


def _of_metadata(name: str, rules: Rules) -> str | None:
    try:
        given = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if expression := given.get_all("License-Expression"):
        return str(expression[0])
    text = str(next(iter(given.get_all("License") or ()), ""))
    if known := rules.texts.get(re.sub(r"[^a-z0-9 ]", "", re.sub(r"[-\s]+", " ", text.lower())).strip()):
        return known
    classifiers = [
        line.rpartition(" :: ")[2] for line in given.get_all("Classifier") or () if line.startswith("License")
    ]
    named = [rules.classifiers[line] for line in classifiers if line in rules.classifiers]
    # Several classifiers are a choice.
    return " OR ".join(dict.fromkeys(named)) or None


def check_licences(licences: Mapping[str, str | None], rules: Rules) -> list[str]:
    """Return what is not allowed, one line each; a licence is None where it is not known."""
    problems = (rules.problem(name, licence) for name, licence in sorted(licences.items()))
    unused = sorted(set(rules.exceptions) - set(licences))
    return [problem for problem in problems if problem] + [
        f"{name}: has an exception in release/licences.toml and is not used: remove it" for name in unused
    ]
