"""The checks of what a release brings along: licences that are allowed, vulnerabilities that are known."""

from __future__ import annotations

import json
import zipfile
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from release.__main__ import main
from release.components import Component
from release.errors import ReleaseError
from release.licences import Rules, check_licences, package_licences, read_rules
from release.vulnerabilities import find_vulnerabilities, order, unaccepted

if TYPE_CHECKING:
    from pathlib import Path

RULES = Rules(
    frozenset({"MIT", "Apache-2.0"}), {"lib": {"licence": "MPL-2.0", "reason": "…"}}, {"told": "MIT"}, {}
)


# Licences ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "licence", "is_allowed"),
    [
        ("a", "MIT", True),
        ("a", "GPL-3.0-only OR MIT", True),
        ("a", "MIT AND Apache-2.0", True),
        ("a", "MIT AND GPL-3.0-only", False),
        ("a", "GPL-3.0-only", False),
        ("a", "MPL-2.0", False),
        ("lib", "MPL-2.0", True),
        ("lib", "AGPL-3.0-only", False),
        ("a", "(MIT OR GPL-3.0-only) AND GPL-2.0-only", False),
        ("a", None, False),
    ],
)
def test_a_licence_is_allowed_or_has_an_exception(name: str, licence: str | None, is_allowed: bool) -> None:
    assert (RULES.problem(name, licence) is None) is is_allowed


def test_an_exception_that_nobody_needs_is_reported() -> None:
    assert check_licences({"a": "MIT"}, RULES) == [
        "lib: has an exception in release/licences.toml and is not used: remove it"
    ]


def test_licences_come_from_the_packages_metadata_or_the_record() -> None:
    found = package_licences(["numpy", "pytest", "psycopg", "told", "no-such-package"], RULES)
    assert found.pop("numpy").startswith("BSD-3-Clause")
    assert found == {"pytest": "MIT", "psycopg": "LGPL-3.0-only", "told": "MIT"}


def test_each_exception_has_a_reason() -> None:
    rules = read_rules()
    assert all(len(entry["reason"]) > 20 for entry in rules.exceptions.values())
    assert not {entry["licence"] for entry in rules.exceptions.values()} & rules.allowed


def test_what_is_locked_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = main(["licences"])
    told = capsys.readouterr()
    assert (exit_code, told.err) == (0, "")
    assert told.out.endswith(" 0 problems\n")


# Vulnerabilities --------------------------------------------------------------------------------------------


def component(kind: str, name: str, version: str, *parts: Component) -> Component:
    return Component("library", name, version, f"pkg:{kind}/{name}@{version}", parts=parts)


def advisory(name: str, ecosystem: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    affected = {
        "package": {"name": name, "ecosystem": ecosystem},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
        "versions": more.pop("versions", []),
    }
    return {"id": "GHSA-1", "summary": "a fault", "aliases": ["CVE-1"], "affected": [affected], **more}


def database(folder: Path, **advisories: list[dict[str, Any]]) -> Path:
    for ecosystem in ("PyPI", "Maven"):
        with zipfile.ZipFile(folder / f"{ecosystem}.zip", "w") as archive:
            for number, one in enumerate(advisories.get(ecosystem, [])):
                archive.writestr(f"{number}.json", json.dumps(one))
    return folder


@pytest.mark.parametrize(
    ("version", "is_affected"),
    [
        ("0.9", False),
        ("1.0", True),
        ("1.9.9", True),
        ("2.0rc1", True),
        ("2.0", False),
        ("3.0", True),
        ("3.1", False),
    ],
)
def test_a_version_is_affected_within_the_ranges(tmp_path: Path, version: str, is_affected: bool) -> None:
    events = ({"introduced": "1.0"}, {"fixed": "2.0"}, {"introduced": "2.5"}, {"last_affected": "3.0"})
    known = database(tmp_path, PyPI=[advisory("Some_Package", "PyPI", *events)])
    found = find_vulnerabilities([component("pypi", "some-package", version)], known)
    assert [one.advisory for one in found] == (["GHSA-1"] if is_affected else [])


def test_a_finding_names_advisory_aliases_and_remedy(tmp_path: Path) -> None:
    known = database(tmp_path, PyPI=[advisory("lib", "PyPI", {"introduced": "0"}, {"fixed": "2.0"})])
    [found] = find_vulnerabilities([component("pypi", "lib", "1.0")], known)
    assert found.line() == "lib 1.0: GHSA-1, CVE-1: a fault; fixed in 2.0"


def test_jars_within_a_package_are_looked_up(tmp_path: Path) -> None:
    jar = component("maven", "org.example/tool", "2.0-rc1")
    events = ({"introduced": "0"}, {"fixed": "2.0"})
    known = database(tmp_path, Maven=[advisory("org.example:tool", "Maven", *events)])
    assert len(find_vulnerabilities([component("pypi", "spark", "1", jar)], known)) == 1
    other = component("maven", "org.example/tool", "2.0")
    assert find_vulnerabilities([component("pypi", "spark", "1", other)], known) == []


def test_withdrawn_other_and_listed_advisories(tmp_path: Path) -> None:
    everything = {"introduced": "0"}
    known = database(
        tmp_path,
        PyPI=[
            advisory("lib", "PyPI", everything, withdrawn="2026-01-01T00:00:00Z"),
            advisory("other", "PyPI", everything),
            advisory("lib", "npm", everything),
            advisory("lib", "PyPI", {"introduced": "5"}, versions=["1.0"], id="PYSEC-2"),
        ],
    )
    found = find_vulnerabilities([component("pypi", "lib", "1.0")], known)
    assert [one.advisory for one in found] == ["PYSEC-2"]


@pytest.mark.parametrize(
    "ascending",
    [
        ["1.0-alpha1", "1.0-beta", "1.0-rc1", "1.0-SNAPSHOT", "1.0", "1.0-sp1", "1.0.1", "1.2", "1.10"],
        ["2.9.9", "2.10.0", "2.10.0.1", "33.4.8-jre"],
    ],
)
def test_versions_of_jars_are_in_maven_s_order(ascending: list[str]) -> None:
    keys = [order(version, "Maven") for version in ascending]
    assert all(one < other for one, other in pairwise(keys))
    assert order("1.0", "Maven") == order("1", "Maven") == order("1.0.0-final", "Maven")


def test_a_database_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    lib = component("pypi", "lib", "1.0")
    with pytest.raises(ReleaseError, match=r"database of PyPI cannot be read from .*PyPI\.zip"):
        find_vulnerabilities([lib], tmp_path)
    (tmp_path / "PyPI.zip").write_bytes(b"no archive")
    with pytest.raises(ReleaseError, match="not a zip file"):
        find_vulnerabilities([lib], tmp_path)


def test_a_finding_is_accepted_with_a_reason_until_a_day(tmp_path: Path) -> None:
    known = database(tmp_path, PyPI=[advisory("lib", "PyPI", {"introduced": "0"})])
    findings = find_vulnerabilities([component("pypi", "lib", "1.0")], known)
    accepted = tmp_path / "accepted.toml"
    accepted.write_text('[CVE-1]\nreason = "not called"\nuntil = "2026-12-31"\n', encoding="utf-8")
    assert unaccepted(findings, date(2026, 12, 31), accepted) == []
    [line] = unaccepted(findings, date(2027, 1, 1), accepted)
    assert line.endswith("no version fixes it (accepted until 2026-12-31 only: not called)")
    accepted.write_text("", encoding="utf-8")
    assert unaccepted(findings, date(2026, 1, 1), accepted) == [findings[0].line()]


def test_the_command_looks_up_what_is_shipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database(tmp_path, Maven=[advisory("io.delta:delta-storage", "Maven", {"introduced": "0"})])
    assert main(["vulnerabilities", "--database", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("io.delta:delta-storage 4.4")
    assert told.out.endswith(" 1 findings, 0 accepted\n")


def test_without_a_database_the_command_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EVENLAG_OSV", raising=False)
    assert main(["vulnerabilities"]) == 1
    assert capsys.readouterr().err.startswith("error: EVENLAG_OSV names no copy of the OSV database")
