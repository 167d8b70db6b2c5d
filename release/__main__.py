"""The command line of releases: ``python -m release build|licences|vulnerabilities``."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from release.artifacts import build_release
from release.licences import check_licences, package_licences, read_rules
from release.project import ROOT, Project, ReleaseError
from release.sbom import all_components, jar_components, locked
from release.vulnerabilities import coordinates, find_vulnerabilities, read_acceptances, unaccepted
from sandbox.java_tools import JarsError

DATABASE_VARIABLE: Final = "EVENLAG_OSV"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step of a release; returns 1 when a check fails or a release cannot be built."""
    parser = argparse.ArgumentParser(prog="release", description="Build and check a release of evenlag.")
    steps = parser.add_subparsers(dest="step", required=True)
    build = steps.add_parser("build", help="build all files of a release from the newest commit")
    build.add_argument("--out", type=Path, help="a new folder (default: dist/release-VERSION)")
    build.add_argument(
        "--unchecked",
        metavar="REASON",
        help="do not look vulnerabilities up; the release notes say so, with the reason",
    )
    steps.add_parser("licences", help="check the licences of everything that is installed or shipped")
    look_up = steps.add_parser("vulnerabilities", help="look everything up in a copy of the OSV database")
    for step in (build, look_up):
        step.add_argument(
            "--database",
            type=Path,
            default=os.environ.get(DATABASE_VARIABLE),
            help=f"folder with PyPI/all.zip and Maven/all.zip (default: {DATABASE_VARIABLE})",
        )
    arguments = parser.parse_args(argv)
    try:
        if arguments.step == "build":
            return _build(arguments.out, arguments.database, arguments.unchecked)
        if arguments.step == "licences":
            return _licences()
        return _vulnerabilities(arguments.database)
    except (ReleaseError, JarsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _build(out: Path | None, database: Path | None, unchecked: str | None) -> int:
    out = out or ROOT / "dist" / f"release-{Project().version}"
    if unchecked is not None:
        if not unchecked.strip():
            raise ReleaseError("--unchecked needs the reason, for the release notes")
        print(f"warning: vulnerabilities are not looked up: {unchecked}", file=sys.stderr)
    elif _vulnerabilities(database):
        raise ReleaseError("nothing is built with these vulnerabilities: docs/release.md says what to do")
    for path in build_release(out, unchecked=unchecked):
        print(f"{path.stat().st_size:>12,}  {path}")
    return 0


def _licences() -> int:
    project, rules = Project(), read_rules()
    licences = package_licences({pin.name for pin in locked(project)}, rules)
    jars = jar_components(project.text("sandbox/jars.sha256"), "spark", rules.jars)
    licences |= {f"{jar.purl.split('/')[1]}:{jar.name}": jar.licence for jar in jars}
    problems = check_licences(licences, rules)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"licences: {len(licences)} components, {len(problems)} problems")
    return 1 if problems else 0


def _vulnerabilities(database: Path | None) -> int:
    if database is None:
        raise ReleaseError(
            f"{DATABASE_VARIABLE} names no copy of the OSV database: docs/release.md says where it comes from"
        )
    components, today = all_components(Project()), datetime.now(UTC).date()
    shipped = {(name, version) for _, name, version in coordinates(components)}
    findings = find_vulnerabilities(components, database, today)
    lines = unaccepted(findings, read_acceptances(), shipped, today)
    for line in lines:
        print(line, file=sys.stderr)
    print(f"vulnerabilities: {len(shipped)} components, {len(findings)} findings, {len(lines)} to resolve")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
