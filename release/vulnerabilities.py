"""Known vulnerabilities of what is locked, from a copy of the OSV database: no request leaves this machine.

The database of an ecosystem is an archive of JSON files, ``Maven/all.zip``: https://google.github.io/osv.dev/data/.
The format: https://ossf.github.io/osv-schema/.
"""

import json
import re
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cmp_to_key
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from release.project import ReleaseError
from release.sbom import Component

_FILE: Final = Path(__file__).with_name("accepted_vulnerabilities.toml")
_ECOSYSTEMS: Final = {"pypi": "PyPI", "maven": "Maven"}
_PURL: Final = re.compile(r"pkg:(pypi|maven)/(?:([^/@]+)/)?([^/@]+)@([^?#]+)(?:\?[^#]*)?")
# Both ecosystems get advisories every day.
_MAX_AGE: Final = timedelta(days=30)
# Of the events of a range.
_KINDS: Final = ("introduced", "fixed", "last_affected")
# Maven's order of the words in a version; any other word is after all of them.
_WORDS: Final = ("alpha", "beta", "milestone", "rc", "snapshot", "", "sp")
_ALIASES: Final = {"cr": "rc", "ga": "", "final": "", "release": ""}
_LETTERS: Final = {"a": "alpha", "b": "beta", "m": "milestone"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A component with a known vulnerability: its id in the database, aliases (the CVE), and its fixes."""

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


def find_vulnerabilities(components: Iterable[Component], database: Path, today: date) -> list[Finding]:
    """Return the known vulnerabilities; a database without an advisory of the last 30 days is refused."""
    wanted: dict[str, dict[str, set[str]]] = {}
    for ecosystem, name, version in coordinates(components):
        wanted.setdefault(ecosystem, {}).setdefault(name, set()).add(version)
    found = {
        Finding(name, version, str(advisory["id"]), *_advisory_fields(advisory, affected))
        for ecosystem, versions in wanted.items()
        for advisory in _advisories(database, ecosystem, today)
        if "withdrawn" not in advisory
        for affected in advisory.get("affected", ())
        for name in [_name_of(affected, ecosystem)]
        for version in versions.get(name, ())
        if _is_affected(version, affected, ecosystem)
    }
    return sorted(found, key=lambda finding: (finding.component, finding.advisory, finding.version))


def coordinates(components: Iterable[Component]) -> Iterator[tuple[str, str, str]]:
    """Yield ecosystem, name and version of packages, jars and their parts, as the database names them."""
    for one in components:
        if match := _PURL.fullmatch(one.purl):
            kind, group, name, version = match.groups()
            yield _ECOSYSTEMS[kind], f"{group}:{name}" if group else name, unquote(version)
        yield from coordinates(one.parts)


def _advisory_fields(advisory: Mapping[str, Any], affected: Mapping[str, Any]) -> tuple[Any, ...]:
    fixed = {str(event["fixed"]) for events in _ranges(affected) for event in events if "fixed" in event}
    return tuple(sorted(advisory.get("aliases", ()))), str(advisory.get("summary", "")), tuple(sorted(fixed))


def _ranges(affected: Mapping[str, Any]) -> Iterator[list[Mapping[str, str]]]:
    """Yield the events of each range of versions; commits of Git are none."""
    for one in affected.get("ranges", ()):
        if one.get("type") in {"ECOSYSTEM", "SEMVER"}:
            yield one.get("events", [])


def _advisories(database: Path, ecosystem: str, today: date) -> Iterator[dict[str, Any]]:
    """Yield all advisories, and refuse a database without a recent one: it would find nothing new."""
    newest = ""
    try:
        with zipfile.ZipFile(database / ecosystem / "all.zip") as opened:
            for name in opened.namelist():
                if name.endswith(".json"):
                    advisory = json.loads(opened.read(name))
                    newest = max(newest, str(advisory.get("modified", ""))[:10])
                    yield advisory
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise ReleaseError(
            f"the vulnerability database of {ecosystem} cannot be read from {database}: {error}; "
            f"it is the file {ecosystem}/all.zip of the OSV database, see docs/release.md"
        ) from error
    if newest < str(today - _MAX_AGE):
        raise ReleaseError(
            f"the vulnerability database of {ecosystem} in {database} is old, or not whole: its newest "
            f"advisory is of {newest or 'no day'}; get it again, see docs/release.md"
        )


def _name_of(affected: Mapping[str, Any], ecosystem: str) -> str:
    package = affected.get("package", {})
    # A registry may follow: `Maven:https://…`.
    if str(package.get("ecosystem", "")).partition(":")[0] != ecosystem:
        return ""
    name = str(package.get("name", ""))
    return canonicalize_name(name) if ecosystem == "PyPI" else name


def _is_affected(version: str, affected: Mapping[str, Any], ecosystem: str) -> bool:
    return version in affected.get("versions", ()) or any(
        _is_in_range(version, events, ecosystem) for events in _ranges(affected)
    )


def _is_in_range(version: str, events: Iterable[Mapping[str, str]], ecosystem: str) -> bool:
    """Whether a version is in one of the intervals that the events open and close."""
    this = order(version, ecosystem)
    bounds = [pair for event in events for pair in event.items() if pair[0] in _KINDS]
    # An interval begins before every version, at an `introduced`, and ends at the next event.
    is_in = False
    for kind, bound in sorted(bounds, key=lambda pair: (pair[1] != "0", order(pair[1], ecosystem))):
        at = order(bound, ecosystem)
        if kind == "introduced":
            is_in = is_in or bound == "0" or at <= this
        elif at < this or (kind == "fixed" and at == this):
            is_in = False
    return is_in


def order(version: str, ecosystem: str) -> Any:
    """Return what versions of an ecosystem are compared by."""
    if ecosystem == "PyPI":
        try:
            return (Version(version),)
        except InvalidVersion as error:
            raise ReleaseError(f"{version} is no version of a Python package") from error
    return cmp_to_key(_compare_maven)(_maven_tokens(version))


def _maven_tokens(version: str) -> list[tuple[str, int | str]]:
    """Split a version as https://maven.apache.org/pom.html#Version_Order_Specification says."""
    text = re.sub(r"(?<![a-z])[abm](?=\d)", lambda found: _LETTERS[found[0]], version.lower())
    text = re.sub(r"(?<=\d)(?=[^\d.-])|(?<=[^\d.-])(?=\d)", "-", text)
    tokens: list[tuple[str, int | str]] = []
    for separator, word in re.findall(r"(^|[.-])([^.-]*)", text):
        value = int(word or "0") if word.isdecimal() or not word else _ALIASES.get(word, word)
        if separator == "-" or isinstance(value, str):
            _drop_nulls(tokens)
        tokens.append(("-" if isinstance(value, str) else separator, value))
    _drop_nulls(tokens)
    return tokens


def _drop_nulls(tokens: list[tuple[str, int | str]]) -> None:
    while tokens and tokens[-1][1] in (0, ""):
        del tokens[-1]


def _compare_maven(one: list[tuple[str, int | str]], other: list[tuple[str, int | str]]) -> int:
    for mine, its in zip_longest(one, other):
        pair = [_rank(*(token or _null_beside(mine or its))) for token in (mine, its)]
        if pair[0] != pair[1]:
            return -1 if pair[0] < pair[1] else 1
    return 0


def _null_beside(token: tuple[str, int | str]) -> tuple[str, int | str]:
    """Return what a missing token is compared as."""
    return ("-", "") if token[0] == "-" else (token[0], 0)


def _rank(separator: str, value: int | str) -> tuple[int, int, str]:
    if isinstance(value, str):
        return (0, _WORDS.index(value) if value in _WORDS else len(_WORDS), value)
    return (1 if separator == "-" else 2, value, "")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Findings of one version that a release may have until a day, by their ids or aliases."""

    component: str
    version: str
    advisories: tuple[str, ...]
    until: date
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is one of them."""
        names = (finding.advisory, *finding.aliases)
        is_same = (self.component, self.version) == (finding.component, finding.version)
        return is_same and any(name in self.advisories for name in names)


def read_acceptances(path: Path = _FILE) -> list[Acceptance]:
    """Read the accepted findings."""
    found = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("accepted", ()):
        try:
            one = Acceptance(**entry | {"advisories": tuple(entry["advisories"])})
        except (KeyError, TypeError) as error:
            raise ReleaseError(f"{path.name}: {entry.get('component')}: {error}") from error
        if type(one.until) is not date or not one.advisories or not one.reason.strip():
            raise ReleaseError(
                f"{path.name}: {one.component}: it needs advisories, a reason, and until = YYYY-MM-DD"
            )
        found.append(one)
    return found


def unaccepted(
    findings: Iterable[Finding], acceptances: Iterable[Acceptance], shipped: set[tuple[str, str]], today: date
) -> list[str]:
    """Return the findings that nobody has accepted, one line each, and acceptances that have ended."""
    acceptances, lines = tuple(acceptances), []
    for finding in findings:
        known = [one for one in acceptances if one.covers(finding)]
        if not known:
            lines.append(finding.line())
        elif (last := max(known, key=lambda one: one.until)).until < today:
            lines.append(f"{finding.line()} (accepted until {last.until} only: {last.reason})")
    return lines + [
        f"{one.component} {one.version}: accepted in {_FILE.name}, and not shipped: remove it"
        for one in acceptances
        if (one.component, one.version) not in shipped
    ]
