"""What a release brings along, from the files that pin it: packages, jars, base images, Debian's packages."""

from __future__ import annotations

import hashlib
import re
import tomllib
import zipfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from release.errors import ReleaseError
from release.project import normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PIN: Final = re.compile(r"([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(?: ; ([^\\\n]+?))?(?: \\)?$")
_MAVEN_DATA: Final = re.compile(r"META-INF/maven/.+/pom\.properties")
_GROUPS_FILE: Final = Path(__file__).with_name("jar_groups.toml")
_SELF: Final = "evenlag (pyproject.toml)"


@dataclass(frozen=True, slots=True)
class Component:
    """One thing of a release that somebody else made, or one file of ours.

    kind: ``library``, ``container``, ``application`` or ``file``, as CycloneDX calls them.
    purl: Its package URL, which identifies it.
    sha256: Digests of its files, any of which may be installed; sorted.
    licence: SPDX expression; None if only the component's own files say it.
    requires: Package URLs of what it needs.
    condition: The environment marker under which it is installed.
    parts: What is inside its files.
    note: What a reader has to know about it.
    """

    kind: str
    name: str
    version: str | None
    purl: str
    sha256: tuple[str, ...] = ()
    licence: str | None = None
    requires: tuple[str, ...] = ()
    condition: str | None = None
    parts: tuple[Component, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """A line of a lock.

    parents: Who asks for it, by normalized name; ``evenlag`` for a direct requirement. Empty in a lock
        without annotations.
    """

    name: str
    version: str
    condition: str | None
    sha256: tuple[str, ...]
    parents: frozenset[str] = field(default_factory=frozenset)

    @property
    def purl(self) -> str:
        """The package URL."""
        return f"pkg:pypi/{self.name}@{quote(self.version, safe='.')}"


def read_lock(text: str) -> tuple[Pin, ...]:
    """Read a lock that uv wrote.

    Returns in the order of the lock. A package may have two versions, under conditions that exclude each
    other.
    """
    found = []
    for block in re.split(r"\n(?=[^\s#])", text):
        lines = block.splitlines()
        match = _PIN.match(lines[0]) if lines else None
        if match is None:
            continue
        hashes = tuple(sorted(re.findall(r"sha256:([0-9a-f]{64})", block)))
        if not hashes:
            raise ReleaseError(f"the lock has no hash of {match[1]}: run make lock")
        found.append(Pin(normalized(match[1]), match[2], match[3], hashes, frozenset(_parents(lines[1:]))))
    return tuple(found)


def _parents(lines: Iterable[str]) -> Iterator[str]:
    is_via = False
    for line in lines:
        comment = line.strip()
        if comment.startswith("# via"):
            is_via, comment = True, comment.removeprefix("# via").strip()
        elif is_via and comment.startswith("#"):
            comment = comment.removeprefix("#").strip()
        else:
            continue
        if comment == _SELF:
            yield "evenlag"
        elif comment:
            yield normalized(comment.partition(" ")[0])


def closure(pins: Iterable[Pin], roots: Iterable[str]) -> tuple[Pin, ...]:
    """Return the pins that some packages need, with these themselves."""
    pins, needed, more = tuple(pins), set[str](), set(roots)
    while more:
        needed |= more
        more = {pin.name for pin in pins if pin.parents & more} - needed
    return tuple(pin for pin in pins if pin.name in needed)


def package_components(
    pins: Iterable[Pin], graph: Iterable[Pin], licences: Mapping[str, str]
) -> list[Component]:
    """Return the packages of a lock.

    licences: SPDX expressions by normalized name.
    """
    pins = tuple(pins)
    listed = {pin.purl for pin in pins}
    children: dict[str, set[str]] = {}
    for pin in graph:
        for parent in pin.parents:
            children.setdefault(parent, set()).add(pin.purl)
    return [
        Component(
            kind="library",
            name=pin.name,
            version=pin.version,
            purl=pin.purl,
            sha256=pin.sha256,
            licence=licences.get(pin.name),
            requires=tuple(sorted(children.get(pin.name, set()) & listed)),
            condition=pin.condition,
        )
        for pin in pins
    ]


def jar_components(
    hash_list: str, folder: str, licences: Mapping[str, str], cache: Path | None = None
) -> list[Component]:
    """Return the jars of a list with their SHA-256, as :mod:`sandbox.jars` has it.

    licences: SPDX expressions by ``group:artifact``.
    """
    found = []
    for line in hash_list.splitlines():
        digest, _, path = line.partition("  ")
        if not path.startswith(f"{folder}/"):
            continue
        group, _, rest = Path(path).name.removesuffix(".jar").partition("_")
        match = re.match(r"(.+?)-(\d[^-]*(?:-.+)?)$", rest)
        if match is None:
            raise ReleaseError(f"{path} is not named GROUP_ARTIFACT-VERSION.jar")
        own = (group, match[1], match[2])
        found.append(
            Component(
                kind="library",
                name=match[1],
                version=match[2],
                purl=_maven_purl(*own),
                sha256=(digest,),
                licence=licences.get(f"{group}:{match[1]}"),
                parts=_shaded(_maven_data(cache / path) - {own}) if cache else (),
            )
        )
    return found


def jars_inside(folder: Path) -> tuple[Component, ...]:
    """Return the jars that a package contains, e.g. those of PySpark, each with what is shaded into it.

    A jar is identified by the Maven data inside it; one without by its file name, and by ``jar_groups.toml``,
    which has the group of its artifact.
    """
    jars = {path: jar_inside(path) for path in sorted(folder.glob("*.jar"))}
    if unknown := [path.name for path, jar in jars.items() if jar is None]:
        raise ReleaseError(
            f"no Maven coordinate of {', '.join(unknown)}: no Maven data inside fits the file's name; record "
            "the group of its artifact in release/jar_groups.toml"
        )
    return tuple(jar for jar in jars.values() if jar is not None)


def jar_inside(path: Path) -> Component | None:
    """Return a jar with what its Maven data say is shaded into it; None if it is not identified."""
    shaded = _maven_data(path)
    # Names with a classifier continue after the version.
    fitting = [one for one in shaded if f"{path.stem}-".startswith(f"{one[1]}-{one[2]}-")]
    if fitting:
        group, name, version = max(fitting, key=lambda one: len(f"{one[1]}-{one[2]}"))
    else:
        match = re.match(r"(.+?)-(\d[\w.+-]*)$", path.stem)
        if match is None or match[1] not in _groups():
            return None
        group, name, version = _groups()[match[1]], match[1], match[2]
    classifier = path.stem[len(f"{name}-{version}-") :]
    purl = _maven_purl(group, name, version) + (f"?classifier={classifier}" if classifier else "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Component(
        "library", name, version, purl, (digest,), parts=_shaded(shaded - {(group, name, version)})
    )


def _shaded(projects: Iterable[tuple[str, str, str]]) -> tuple[Component, ...]:
    return tuple(Component("library", one[1], one[2], _maven_purl(*one)) for one in sorted(projects))


def _maven_purl(group: str, name: str, version: str) -> str:
    return f"pkg:maven/{group}/{name}@{quote(version, safe='.-')}"


@cache
def _groups() -> dict[str, str]:
    return dict(tomllib.loads(_GROUPS_FILE.read_text(encoding="utf-8")))


def _maven_data(path: Path) -> set[tuple[str, str, str]]:
    """Return group, artifact and version of the projects whose Maven data a jar contains."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if _MAVEN_DATA.fullmatch(name)]
        data = [_properties(archive.read(name).decode("utf-8", "replace")) for name in names]
    found = [tuple(one.get(key, "") for key in ("groupId", "artifactId", "version")) for one in data]
    return {(one[0], one[1], one[2]) for one in found if all(one) and "${" not in "".join(one)}


def _properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs if value}


def image_components(dockerfile: str) -> list[Component]:
    """Return what a Dockerfile takes from others: base image, and Debian's packages of the last stage."""
    base = re.search(
        r"^ARG PYTHON_IMAGE=([\w./-]+):([\w.-]+)(?:@sha256:(\w{64}))?$", dockerfile, re.MULTILINE
    )
    if base is None:
        raise ReleaseError("a Dockerfile has no ARG PYTHON_IMAGE=NAME:TAG")
    name, tag, digest = base.groups()
    note = (
        None if digest else "pinned by its tag: the release step `docker/README.md` describes adds the digest"
    )
    found = [
        Component("container", name, tag, f"pkg:docker/{name}@{tag}", (digest,) if digest else (), note=note)
    ]
    last = dockerfile.rpartition("\nFROM ")[2]
    for line in re.findall(r"apt-get install ([^&|;\n]+)", last):
        found.extend(
            Component(
                "library",
                package,
                None,
                f"pkg:deb/debian/{package}?distro=bookworm",
                note="in the version of the day on which the image is built, signed by Debian",
            )
            for package in line.split()
            if not package.startswith("-") and package != "\\"
        )
    return found


def file_component(path: Path, *, version: str, licence: str) -> Component:
    """Return a file of the release itself."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Component("file", path.name, version, f"pkg:generic/{path.name}@{version}", (digest,), licence)
