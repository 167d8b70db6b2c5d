"""Known vulnerabilities of what is locked, from a copy of the OSV database: no request leaves this machine.

The database of an ecosystem is an archive of JSON files (``PyPI.zip``, ``Maven.zip``), or a folder of them:
https://google.github.io/osv.dev/data/. The format: https://ossf.github.io/osv-schema/.
"""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from dataclasses import dataclass
from datetime import date
from functools import cmp_to_key
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packaging.version import InvalidVersion, Version

from release.errors import ReleaseError
from release.project import normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from release.components import Component

_FILE: Final = Path(__file__).with_name("accepted_vulnerabilities.toml")
_ECOSYSTEMS: Final = {"pypi": "PyPI", "maven": "Maven"}
_PURL: Final = re.compile(r"pkg:(pypi|maven)/(?:([^/@]+)/)?([^/@]+)@(.+)")
# Maven's order of the words in a version; any other word is after all of them.
_WORDS: Final = ("alpha", "beta", "milestone", "rc", "snapshot", "", "sp")


@dataclass(frozen=True, slots=True)
class Finding:
    """A component with a known vulnerability.

    Attributes
    ----------
    advisory
        The id in the database.
    aliases
        Other ids of it, e.g. the CVE.
    fixed
        The versions that fix it.
    """

    component: str
    version: str
    advisory: str
    aliases: tuple[str, ...]
    summary: str
    fixed: tuple[str, ...]

    def line(self) -> str:
        """Return the finding in one line."""
        names = ", ".join((self.advisory, *self.aliases))
        remedy = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no version fixes it"
        return f"{self.component} {self.version}: {names}: {self.summary or 'no summary'}; {remedy}"


def find_vulnerabilities(components: Iterable[Component], database: Path) -> list[Finding]:
    """Return the known vulnerabilities of packages and jars.

    Parameters
    ----------
    components
        The components; their parts are looked up too. Other kinds than packages and jars are skipped.
    database
        A folder with ``PyPI.zip`` and ``Maven.zip``, or with folders of these names.

    Returns
    -------
    list of Finding
        Sorted by component and advisory.

    Raises
    ------
    ReleaseError
        If the database lacks an ecosystem that the components need, or cannot be read.
    """
    wanted: dict[str, dict[str, set[str]]] = {}
    for ecosystem, name, version in _coordinates(components):
        wanted.setdefault(ecosystem, {}).setdefault(name, set()).add(version)
    found = {
        Finding(name, version, str(advisory["id"]), *_told(advisory, affected))
        for ecosystem, versions in wanted.items()
        for advisory in _advisories(database, ecosystem)
        if "withdrawn" not in advisory
        for affected in advisory.get("affected", ())
        for name in [_name_of(affected, ecosystem)]
        for version in versions.get(name, ())
        if _is_affected(version, affected, ecosystem)
    }
    return sorted(found, key=lambda finding: (finding.component, finding.advisory, finding.version))


def _coordinates(components: Iterable[Component]) -> Iterator[tuple[str, str, str]]:
    for one in components:
        if match := _PURL.fullmatch(one.purl):
            kind, group, name, version = match.groups()
            yield _ECOSYSTEMS[kind], f"{group}:{name}" if group else name, version
        yield from _coordinates(one.parts)


def _told(advisory: Mapping[str, Any], affected: Mapping[str, Any]) -> tuple[Any, ...]:
    fixed = {
        str(event["fixed"])
        for one in affected.get("ranges", ())
        if one.get("type") != "GIT"
        for event in one.get("events", ())
        if "fixed" in event
    }
    return tuple(sorted(advisory.get("aliases", ()))), str(advisory.get("summary", "")), tuple(sorted(fixed))


def _advisories(database: Path, ecosystem: str) -> Iterator[dict[str, Any]]:
    folder, archive = database / ecosystem, database / f"{ecosystem}.zip"
    try:
        if folder.is_dir():
            for path in sorted(folder.glob("*.json")):
                yield json.loads(path.read_bytes())
            return
        with zipfile.ZipFile(archive) as opened:
            for name in sorted(opened.namelist()):
                if name.endswith(".json"):
                    yield json.loads(opened.read(name))
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise ReleaseError(
            f"the vulnerability database of {ecosystem} cannot be read from {database}: {error}; "
            f"it is the file {ecosystem}.zip of the OSV database, see docs/release.md"
        ) from error


def _name_of(affected: Mapping[str, Any], ecosystem: str) -> str:
    package = affected.get("package", {})
    if package.get("ecosystem") != ecosystem:
        return ""
    name = str(package.get("name", ""))
    return normalized(name) if ecosystem == "PyPI" else name


def _is_affected(version: str, affected: Mapping[str, Any], ecosystem: str) -> bool:
    if version in affected.get("versions", ()):
        return True
    return any(
        _is_in_range(version, one.get("events", ()), ecosystem)
        for one in affected.get("ranges", ())
        if one.get("type") in {"ECOSYSTEM", "SEMVER"}
    )


def _is_in_range(version: str, events: Iterable[Mapping[str, str]], ecosystem: str) -> bool:
    """Whether a version is in one of the intervals that the events open and close."""
    this = order(version, ecosystem)
    points = []
    for event in events:
        for kind, opens in (("introduced", True), ("fixed", False), ("last_affected", False)):
            if kind in event:
                at = order(event[kind], ecosystem) if event[kind] != "0" else None
                points.append((at, kind == "last_affected", opens))
    # An interval begins before every version, at an `introduced`, and ends at the next event.
    is_in = False
    for at, is_last, opens in sorted(points, key=lambda point: (point[0] is not None, point[0] or ())):
        if opens and (at is None or at <= this):
            is_in = True
        elif not opens and at is not None and (at < this if is_last else at <= this):
            is_in = False
    return is_in


def order(version: str, ecosystem: str) -> Any:
    """Return what versions of an ecosystem are compared by.

    Parameters
    ----------
    version
        A version.
    ecosystem
        ``PyPI`` or ``Maven``.

    Examples
    --------
    >>> order("1.10", "PyPI") > order("1.9", "PyPI")
    True
    >>> order("2.0-rc1", "Maven") < order("2.0", "Maven") < order("2.0.1", "Maven")
    True
    """
    if ecosystem == "PyPI":
        try:
            return (Version(version),)
        except InvalidVersion as error:
            raise ReleaseError(f"{version} is no version of a Python package") from error
    parts: list[tuple[int, int, str]] = []
    for text in re.findall(r"\d+|[a-z]+", version.lower()):
        word = {"a": "alpha", "b": "beta", "m": "milestone", "cr": "rc", "ga": "", "final": ""}.get(
            text, text
        )
        if text.isdecimal():
            parts.append((len(_WORDS) + 1, int(text), ""))
        else:
            parts.append((_WORDS.index(word) if word in _WORDS else len(_WORDS), 0, word))
    return cmp_to_key(_compare_maven)(tuple(parts))


# What a missing part is: less than any number, more than a release candidate.
_MISSING: Final = (_WORDS.index(""), 0, "")


def _compare_maven(one: tuple[tuple[int, int, str], ...], other: tuple[tuple[int, int, str], ...]) -> int:
    for pair in zip_longest(one, other, fillvalue=_MISSING):
        # 1.0 and 1 are the same version.
        mine, its = (_MISSING if part[1:] == (0, "") and part[0] > len(_WORDS) else part for part in pair)
        if mine != its:
            return -1 if mine < its else 1
    return 0


def unaccepted(findings: Iterable[Finding], today: date, path: Path = _FILE) -> list[str]:
    """Return the findings that nobody has accepted, one line each, and acceptances that have ended.

    Parameters
    ----------
    findings
        The findings.
    today
        The day.
    path
        The file with what is accepted: by id, until when and why.
    """
    accepted = tomllib.loads(path.read_text(encoding="utf-8"))
    lines = []
    for finding in findings:
        known = next(
            (accepted[name] for name in (finding.advisory, *finding.aliases) if name in accepted), None
        )
        if known is None:
            lines.append(finding.line())
        elif date.fromisoformat(known["until"]) < today:
            lines.append(f"{finding.line()} (accepted until {known['until']} only: {known['reason']})")
    return lines
