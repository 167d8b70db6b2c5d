"""The checks of what a release brings along: licences that are allowed, vulnerabilities that are known."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from release.__main__ import main
from release.licences import Rules, check_licences, package_licences, read_rules
from release.project import ReleaseError
from release.sbom import Component
from release.vulnerabilities import Finding, find_vulnerabilities, order, read_acceptances, unaccepted

if TYPE_CHECKING:
    from pathlib import Path

RULES = Rules(
    frozenset({"MIT", "Apache-2.0"}), {"lib": {"licence": "MPL-2.0", "reason": "…"}}, {"declared": "MIT"}, {}
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
    found = package_licences(["numpy", "pytest", "psycopg", "declared", "no-such-package"], RULES)
    assert str(found.pop("numpy")).startswith("BSD-3-Clause")
    known = {"pytest": "MIT", "psycopg": "LGPL-3.0-only", "declared": "MIT"}
    assert found == known | {"no-such-package": None}


def test_each_exception_has_a_reason() -> None:
    rules = read_rules()
    assert all(len(entry["reason"]) > 20 for entry in rules.exceptions.values())
    assert not {entry["licence"] for entry in rules.exceptions.values()} & rules.allowed


def test_what_is_locked_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = main(["licences"])
    output = capsys.readouterr()
    assert (exit_code, output.err) == (0, "")
    assert output.out.endswith(" 0 problems\n")


# Vulnerabilities --------------------------------------------------------------------------------------------


TODAY = datetime.now(UTC).date()
EVERYTHING = {"introduced": "0"}


def component(kind: str, name: str, version: str, *parts: Component) -> Component:
    return Component("library", name, version, f"pkg:{kind}/{name}@{version}", parts=parts)


def advisory(name: str, ecosystem: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    affected = {
        "package": {"name": name, "ecosystem": ecosystem},
        "ranges": [{"type": more.pop("type", "ECOSYSTEM"), "events": list(events)}],
        "versions": more.pop("versions", []),
    }
    return {"id": "GHSA-1", "summary": "a fault", "aliases": ["CVE-1"], "affected": [affected], **more}


def database(folder: Path, *, newest: date = TODAY, **advisories: list[dict[str, Any]]) -> Path:
    """Write a database as the real one is laid out, with one advisory of the newest day in each ecosystem."""
    for ecosystem in ("PyPI", "Maven"):
        (folder / ecosystem).mkdir(exist_ok=True)
        recent = advisory("nobody-has-it", ecosystem, EVERYTHING, modified=f"{newest}T12:00:00Z")
        with zipfile.ZipFile(folder / ecosystem / "all.zip", "w") as archive:
            for number, one in enumerate([recent, *advisories.get(ecosystem, [])]):
                archive.writestr(f"{number}.json", json.dumps(one))
    return folder


def found_ids(components: list[Component], known: Path) -> list[str]:
    return [one.advisory for one in find_vulnerabilities(components, known, TODAY)]


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
    found = found_ids([component("pypi", "some-package", version)], known)
    assert found == (["GHSA-1"] if is_affected else [])


def test_a_finding_names_advisory_aliases_and_remedy(tmp_path: Path) -> None:
    known = database(tmp_path, PyPI=[advisory("lib", "PyPI", EVERYTHING, {"fixed": "2.0"})])
    [found] = find_vulnerabilities([component("pypi", "lib", "1.0")], known, TODAY)
    assert found.line() == "lib 1.0: GHSA-1, CVE-1: a fault; fixed in 2.0"


@pytest.mark.parametrize("ecosystem", ["Maven", "Maven:https://repo.example.org/releases"])
@pytest.mark.parametrize("version", ["2.0-rc1", "2.0-rc1?classifier=linux-x86_64"])
def test_jars_within_a_package_and_within_a_jar_are_looked_up(
    tmp_path: Path, ecosystem: str, version: str
) -> None:
    shaded = component("maven", "org.example/tool", version)
    jar = component("maven", "org.example/fat", "1", shaded)
    known = database(tmp_path, Maven=[advisory("org.example:tool", ecosystem, EVERYTHING, {"fixed": "2.0"})])
    assert found_ids([component("pypi", "spark", "1", jar)], known) == ["GHSA-1"]
    other = component("maven", "org.example/tool", "2.0")
    assert found_ids([component("pypi", "spark", "1", other)], known) == []


def test_withdrawn_other_and_listed_advisories(tmp_path: Path) -> None:
    known = database(
        tmp_path,
        PyPI=[
            advisory("lib", "PyPI", EVERYTHING, withdrawn="2026-01-01T00:00:00Z"),
            advisory("other", "PyPI", EVERYTHING),
            advisory("lib", "npm", EVERYTHING),
            advisory("lib", "PyPI", EVERYTHING, type="GIT"),
            advisory("lib", "PyPI", {"introduced": "5"}, versions=["1.0"], id="PYSEC-2"),
        ],
    )
    assert found_ids([component("pypi", "lib", "1.0")], known) == ["PYSEC-2"]


# In the order that Maven's own ComparableVersion has them in, 3.x.
@pytest.mark.parametrize(
    "ascending",
    [
        ["1.0-alpha1", "1.0-beta", "1.0.0-rc.1", "1.0-SNAPSHOT", "1.0", "1.0-sp1", "1.0-x", "1.0-1", "1.0.1"],
        ["1.0-m3", "1-cr2", "1-1", "1-1-1", "1.0-2-x", "1.0.3", "1.1", "1.2", "1.10"],
        ["2.9.9", "2.10.0", "2.10.0.1", "33.4.8-jre"],
        ["4.2.0.Alpha1", "4.2.0.RC3", "4.2.0.Final", "4.2.7.Final", "4.2.10.Final"],
        ["1.5.6-9", "1.5.6-10", "1.5.7"],
    ],
)
def test_versions_of_jars_are_in_maven_s_order(ascending: list[str]) -> None:
    keys = [order(version, "Maven") for version in ascending]
    assert all(one < other for one, other in pairwise(keys))


@pytest.mark.parametrize(
    "same", [["1", "1.0", "1.0.0-final", "1.0.0.RELEASE", "1.0.GA"], ["1.0-alpha-1", "1-a1"]]
)
def test_some_versions_of_jars_are_the_same(same: list[str]) -> None:
    assert {order(one, "Maven") == order(other, "Maven") for one in same for other in same} == {True}


def test_a_database_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    lib = component("pypi", "lib", "1.0")
    with pytest.raises(ReleaseError, match=r"database of PyPI cannot be read from .*PyPI/all\.zip"):
        find_vulnerabilities([lib], tmp_path, TODAY)
    (tmp_path / "PyPI").mkdir()
    (tmp_path / "PyPI" / "all.zip").write_bytes(b"no archive")
    with pytest.raises(ReleaseError, match="not a zip file"):
        find_vulnerabilities([lib], tmp_path, TODAY)


def test_a_database_that_is_old_or_empty_is_no_answer(tmp_path: Path) -> None:
    lib = component("pypi", "lib", "1.0")
    assert found_ids([lib], database(tmp_path, newest=TODAY - timedelta(days=30))) == []
    old = TODAY - timedelta(days=31)
    with pytest.raises(ReleaseError, match=f"of PyPI in .* its newest advisory is of {old}; get it again"):
        find_vulnerabilities([lib], database(tmp_path, newest=old), TODAY)
    zipfile.ZipFile(tmp_path / "PyPI" / "all.zip", "w").close()
    with pytest.raises(ReleaseError, match="its newest advisory is of no day"):
        find_vulnerabilities([lib], tmp_path, TODAY)


ACCEPTED = """[[accepted]]
component = "lib"
version = "{}"
advisories = ["{}"]
until = {}
reason = "not called"
"""


@pytest.mark.parametrize(
    ("version", "advisory_id", "until", "message"),
    [
        ("1.0", "CVE-1", "2026-12-31", None),
        ("1.0", "GHSA-1", "2027-01-01", None),
        ("1.0", "CVE-1", "2026-12-30", "no version fixes it (accepted until 2026-12-30 only: not called)"),
        ("1.0", "CVE-2", "2026-12-31", "no version fixes it"),
        ("1.1", "CVE-1", "2026-12-31", "no version fixes it"),
    ],
)
def test_a_finding_is_accepted_for_a_version_with_a_reason_until_a_day(
    tmp_path: Path, version: str, advisory_id: str, until: str, message: str | None
) -> None:
    file = tmp_path / "accepted.toml"
    file.write_text(ACCEPTED.format(version, advisory_id, until), encoding="utf-8")
    finding = Finding("lib", "1.0", "GHSA-1", ("CVE-1",), "a fault", ())
    shipped = {("lib", "1.0"), ("lib", version)}
    lines = unaccepted([finding], read_acceptances(file), shipped, date(2026, 12, 31))
    assert [line.partition("; ")[2] for line in lines] == ([message] if message else [])
    assert unaccepted([finding], [], shipped, date(2026, 12, 31)) == [finding.line()]


def test_an_acceptance_that_nobody_needs_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "accepted.toml"
    file.write_text(ACCEPTED.format("1.0", "CVE-1", "2026-12-31"), encoding="utf-8")
    [line] = unaccepted([], read_acceptances(file), {("lib", "2.0")}, date(2026, 1, 1))
    assert line == "lib 1.0: accepted in accepted_vulnerabilities.toml, and not shipped: remove it"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('reason = "not called"', 'reason = " "'),
        ("until = 2026-12-31", 'until = "2026-12-31"'),
        ('advisories = ["CVE-1"]', "advisories = []"),
        ('advisories = ["CVE-1"]', ""),
        ('version = "1.0"', 'versions = "1.0"'),
    ],
)
def test_an_acceptance_lacks_nothing(tmp_path: Path, line: str, wrong: str) -> None:
    file = tmp_path / "accepted.toml"
    file.write_text(ACCEPTED.format("1.0", "CVE-1", "2026-12-31").replace(line, wrong), encoding="utf-8")
    with pytest.raises(ReleaseError, match=r"accepted\.toml: lib: "):
        read_acceptances(file)


def test_the_accepted_findings_have_reasons_and_end_within_a_year() -> None:
    for one in read_acceptances():
        assert len(one.reason) > 20, one
        assert one.until < TODAY + timedelta(days=366), one


def test_the_command_looks_up_what_is_shipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["io.delta:delta-storage", "org.scala-lang:scala-library", "org.jctools:jctools-core"]
    names += ["org.bitbucket.b_c:jose4j"]
    database(
        tmp_path,
        PyPI=[advisory("kafka-python", "PyPI", EVERYTHING)],
        Maven=[advisory(name, "Maven", EVERYTHING) for name in names],
    )
    assert main(["vulnerabilities", "--database", str(tmp_path)]) == 1
    output = capsys.readouterr()
    # A downloaded jar, one of PySpark's without Maven data, a shaded one, one of the sandbox's broker.
    assert {line.partition(" ")[0] for line in output.err.splitlines()} == {*names, "kafka-python"}
    num_findings = len(output.err.splitlines())
    assert output.out.endswith(f" {num_findings} findings, {num_findings} to resolve\n")
    database(tmp_path)
    assert main(["vulnerabilities", "--database", str(tmp_path)]) == 0
    accepted = read_acceptances()[0]
    database(tmp_path, Maven=[advisory(accepted.component, "Maven", EVERYTHING, id=accepted.advisories[0])])
    assert main(["vulnerabilities", "--database", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(" 1 findings, 0 to resolve\n")


@pytest.mark.parametrize("step", ["vulnerabilities", "build"])
def test_without_a_database_nothing_is_checked_or_built(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EVENLAG_OSV", raising=False)
    monkeypatch.setattr("release.__main__.build_release", never)
    assert main([step]) == 1
    assert capsys.readouterr().err.startswith("error: EVENLAG_OSV names no copy of the OSV database")


def never(*_arguments: Any, **_more: Any) -> None:
    pytest.fail("a release was built")


def test_a_release_is_not_built_with_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVENLAG_OSV", str(database(tmp_path, PyPI=[advisory("pyarrow", "PyPI", EVERYTHING)])))
    monkeypatch.setattr("release.__main__.build_release", never)
    assert main(["build"]) == 1
    output = capsys.readouterr().err
    assert output.startswith("pyarrow ")
    assert "error: nothing is built with these vulnerabilities" in output
    assert main(["build", "--unchecked", " "]) == 1


def test_a_release_that_is_not_checked_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EVENLAG_OSV", raising=False)
    reasons = []

    def build(_out: Path, *, unchecked: str | None) -> list[Path]:
        reasons.append(unchecked)
        return []

    monkeypatch.setattr("release.__main__.build_release", build)
    assert main(["build", "--out", str(tmp_path / "out"), "--unchecked", "a trial"]) == 0
    assert reasons == ["a trial"]
    assert capsys.readouterr().err == "warning: vulnerabilities are not looked up: a trial\n"
