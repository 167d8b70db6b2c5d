"""What a release brings along, from the files that pin it: packages, jars, base images, Debian's packages."""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from release.errors import ReleaseError
from release.project import normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PIN: Final = re.compile(r"([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(?: ; ([^\\\n]+?))?(?: \\)?$")
_SELF: Final = "evenlag (pyproject.toml)"


@dataclass(frozen=True, slots=True)
class Component:
    """One thing of a release that somebody else made, or one file of ours.

    Attributes
    ----------
    kind
        ``library``, ``container``, ``application`` or ``file``, as CycloneDX calls them.
    purl
        Its package URL, which identifies it.
    sha256
        Digests of its files, any of which may be installed; sorted.
    licence
        SPDX expression; None if only the component's own files say it.
    requires
        Package URLs of what it needs.
    condition
        The environment marker under which it is installed.
    parts
        What is inside its files.
    note
        What a reader has to know about it.
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

    Attributes
    ----------
    parents
        Who asks for it, by normalized name; ``evenlag`` for a direct requirement. Empty in a lock without
        annotations.
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

    Parameters
    ----------
    text
        Its content.

    Returns
    -------
    tuple of Pin
        In the order of the lock. A package may have two versions, under conditions that exclude each other.

    Raises
    ------
    ReleaseError
        If a package has no hash.
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
        told = line.strip()
        if told.startswith("# via"):
            is_via, told = True, told.removeprefix("# via").strip()
        elif is_via and told.startswith("#"):
            told = told.removeprefix("#").strip()
        else:
            continue
        if told == _SELF:
            yield "evenlag"
        elif told:
            yield normalized(told.partition(" ")[0])


def closure(pins: Iterable[Pin], roots: Iterable[str]) -> tuple[Pin, ...]:
    """Return the pins that some packages need, with these themselves.

    Parameters
    ----------
    pins
        All pins, with their parents.
    roots
        Normalized names to begin with.
    """
    pins, needed, more = tuple(pins), set[str](), set(roots)
    while more:
        needed |= more
        more = {pin.name for pin in pins if pin.parents & more} - needed
    return tuple(pin for pin in pins if pin.name in needed)


def package_components(
    pins: Iterable[Pin], graph: Iterable[Pin], licences: Mapping[str, str]
) -> list[Component]:
    """Return the packages of a lock.

    Parameters
    ----------
    pins
        The packages.
    graph
        The lock with annotations, which knows who asks for what.
    licences
        SPDX expressions by normalized name.
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


def jar_components(hash_list: str, folder: str, licences: Mapping[str, str]) -> list[Component]:
    """Return the jars of a list with their SHA-256, as :mod:`sandbox.jars` has it.

    Parameters
    ----------
    hash_list
        Content of the list.
    folder
        Only the jars of this folder.
    licences
        SPDX expressions by ``group:artifact``.
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
        found.append(
            Component(
                kind="library",
                name=match[1],
                version=match[2],
                purl=f"pkg:maven/{group}/{match[1]}@{match[2]}",
                sha256=(digest,),
                licence=licences.get(f"{group}:{match[1]}"),
            )
        )
    return found


def jars_inside(folder: Path) -> tuple[Component, ...]:
    """Return the jars that a package contains, e.g. those of PySpark.

    A jar is identified by the Maven data inside it. One without, or with those of several projects, by its
    name.

    Parameters
    ----------
    folder
        Folder of the jars.
    """
    return tuple(_jar_inside(path) for path in sorted(folder.glob("*.jar")))


def _jar_inside(path: Path) -> Component:
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = [
            name for name in archive.namelist() if re.fullmatch(r"META-INF/maven/.+/pom\.properties", name)
        ]
        data = [_properties(archive.read(name).decode("utf-8", "replace")) for name in names]
    fitting = [one for one in data if path.stem == f"{one.get('artifactId')}-{one.get('version')}"]
    match = re.match(r"(.+?)-(\d[\w.+-]*)$", path.stem)
    if len(fitting) == 1:
        name, version = fitting[0]["artifactId"], fitting[0]["version"]
        purl = f"pkg:maven/{fitting[0]['groupId']}/{name}@{quote(version, safe='.-')}"
    else:
        name, version = (match[1], match[2]) if match else (path.stem, "")
        purl = f"pkg:generic/{quote(name)}" + (f"@{quote(version, safe='.-')}" if version else "")
    digest = hashlib.sha256(content).hexdigest()
    return Component("library", name, version or None, purl, (digest,))


def _properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs if value}


def image_components(dockerfile: str) -> list[Component]:
    """Return what a Dockerfile takes from elsewhere: its base image, and Debian's packages in the last stage.

    Parameters
    ----------
    dockerfile
        Its text.
    """
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
    """Return a file of the release itself.

    Parameters
    ----------
    path
        The file.
    version, licence
        Of evenlag.
    """
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Component("file", path.name, version, f"pkg:generic/{path.name}@{version}", (digest,), licence)
