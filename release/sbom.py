"""Software bills of materials of what is released: of the wheel, of each image, and of our jars.

CycloneDX 1.6 (JSON), https://cyclonedx.org/docs/1.6/json/. The components are read from the files that pin
them: packages, jars, base images, Debian's packages. The same components give the same bytes: the serial
number is derived from the content, and the time is that of the source.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from packaging.utils import canonicalize_name

from release.licences import package_licences, read_rules
from release.project import Project, ReleaseError
from sandbox.jars import ensure_jars

_PIN: Final = re.compile(r"([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(?: ; ([^\\\n]+?))?(?: \\)?$")
_MAVEN_DATA: Final = re.compile(r"META-INF/maven/.+/pom\.properties")
_GROUPS_FILE: Final = Path(__file__).with_name("jar_groups.toml")
SPEC_VERSION: Final = "1.6"
_NAMESPACE: Final = uuid.UUID("0d6a3c5e-6a0c-4f6e-9c2e-5b7c6c3d1e77")
FOLDER: Final = "sbom"
_LOCK: Final = "requirements.lock"
# The parts of the lock that an image installs.
IMAGE_LOCKS: Final = {"airflow": ("airflow", "spark"), "spark": ("executor",)}
_JARS: Final = "sandbox/jars.sha256"
_JAR_FOLDERS: Final = ("spark", "kafka")


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
    """A line of a lock; its parents ask for it, ``evenlag`` for a direct requirement."""

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
    """Read a lock that uv wrote; a package may have two versions, under exclusive conditions."""
    found = []
    for block in re.split(r"\n(?=[^\s#])", text):
        match = _PIN.match(block.partition("\n")[0])
        if match is None:
            continue
        hashes = tuple(sorted(re.findall(r"sha256:([0-9a-f]{64})", block)))
        if not hashes:
            raise ReleaseError(f"the lock has no hash of {match[1]}: run make lock")
        # "# via NAME", or one line for each name below "# via"; evenlag itself is "evenlag (pyproject.toml)".
        names = set(re.findall(r"^ +# +(?:via +)?(\S+)", block, re.MULTILINE)) - {"via"}
        parents = frozenset(map(canonicalize_name, names))
        found.append(Pin(canonicalize_name(match[1]), match[2], match[3], hashes, parents))
    return tuple(found)


def closure(pins: Iterable[Pin], roots: Iterable[str]) -> tuple[Pin, ...]:
    """Return the pins that some packages need, with these themselves."""
    pins, needed, more = tuple(pins), set[str](), set(roots)
    while more:
        needed |= more
        more = {pin.name for pin in pins if pin.parents & more} - needed
    return tuple(pin for pin in pins if pin.name in needed)


def jar_components(
    hash_list: str, folder: str, licences: Mapping[str, str], cache: Path | None = None
) -> list[Component]:
    """Return the jars of a list with their SHA-256, as :mod:`sandbox.jars` has it."""
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
        licence, parts = licences.get(f"{group}:{match[1]}"), _shaded(cache / path, own) if cache else ()
        found.append(_jar(*own, sha256=(digest,), licence=licence, parts=parts))
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
    # Names with a classifier continue after the version.
    fitting = [one for one in _maven_data(path) if f"{path.stem}-".startswith(f"{one[1]}-{one[2]}-")]
    named = re.match(r"(.+?)-(\d[\w.+-]*)$", path.stem)
    if fitting:
        own = max(fitting, key=lambda one: len(f"{one[1]}-{one[2]}"))
    elif named and named[1] in _groups():
        own = (_groups()[named[1]], named[1], named[2])
    else:
        return None
    classifier = path.stem[len(f"{own[1]}-{own[2]}-") :]
    qualifier = f"?classifier={classifier}" if classifier else ""
    return _jar(*own, qualifier=qualifier, sha256=(_sha256(path),), parts=_shaded(path, own))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _jar(group: str, name: str, version: str, *, qualifier: str = "", **more: Any) -> Component:
    purl = f"pkg:maven/{group}/{name}@{quote(version, safe='.-')}{qualifier}"
    return Component("library", name, version, purl, **more)


def _shaded(path: Path, own: tuple[str, str, str]) -> tuple[Component, ...]:
    return tuple(_jar(*project) for project in sorted(_maven_data(path) - {own}))


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
    container = f"pkg:docker/{name}@{tag}"
    found = [Component("container", name, tag, container, (digest,) if digest else (), note=note)]
    last = dockerfile.rpartition("\nFROM ")[2]
    note = "in the version of the day on which the image is built, signed by Debian"
    for line in re.findall(r"apt-get install ([^&|;\n]+)", last):
        packages = [word for word in line.split() if word[0] not in "-\\"]
        purls = {package: f"pkg:deb/debian/{package}?distro=bookworm" for package in packages}
        found += [Component("library", package, None, purl, note=note) for package, purl in purls.items()]
    return found


def make_sbom(subject: Component, components: Iterable[Component], *, epoch: int) -> str:
    """Return the bill of materials of one thing that is released, JSON sorted by package URL."""
    listed = {one.purl: one for one in sorted(components, key=lambda one: one.purl)}
    needed = {purl for one in listed.values() for purl in one.requires}
    direct = [purl for purl in listed if purl not in needed]
    tree: dict[str, Any] = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _component(subject),
        },
        "components": [_component(one) for one in listed.values()],
        "dependencies": [
            {"ref": subject.purl, "dependsOn": direct},
            *(
                {"ref": purl, "dependsOn": sorted(one.requires)}
                for purl, one in listed.items()
                if one.requires
            ),
        ],
    }
    number = uuid.uuid5(_NAMESPACE, json.dumps(tree, sort_keys=True))
    return json.dumps({**tree, "serialNumber": f"urn:uuid:{number}"}, indent=1, sort_keys=True) + "\n"


def _component(one: Component, *, within: str = "") -> dict[str, Any]:
    # A jar may be in several packages: the reference is of this place.
    reference = f"{within}{one.purl}"
    # `hashes` are of one file. A package has one for each platform, and any of them may be installed.
    files = " ".join(one.sha256) if len(one.sha256) > 1 else None
    notes = {"evenlag:condition": one.condition, "evenlag:note": one.note, "evenlag:sha256": files}
    found: dict[str, Any] = {
        "type": one.kind,
        "bom-ref": reference,
        "name": one.name,
        "purl": one.purl,
        "version": one.version,
        "hashes": [] if files else [{"alg": "SHA-256", "content": digest} for digest in one.sha256],
        "licenses": [{"expression": one.licence}] if one.licence else [],
        "properties": [{"name": name, "value": value} for name, value in notes.items() if value],
        "components": [
            _component(part, within=f"{reference}#{number}-") for number, part in enumerate(one.parts)
        ],
    }
    return {name: value for name, value in found.items() if value}


def write_bills(project: Project, folder: Path, *, commit: str, epoch: int) -> None:
    """Write a bill of materials for each thing that is released, to ``sbom/``."""
    (folder / FOLDER).mkdir()
    version, licence = project.version, project.licence

    def write(name: str, subject: Component, components: Iterable[Component]) -> None:
        text = make_sbom(subject, components, epoch=epoch)
        (folder / FOLDER / f"{name}.cdx.json").write_text(text, encoding="utf-8")

    for path in folder.glob("*.whl"):
        purl = f"pkg:pypi/evenlag@{version}"
        wheel = Component("application", "evenlag", version, purl, (_sha256(path),), licence)
        write(f"evenlag-{version}-wheel", wheel, released_packages(project))
    for image in IMAGE_LOCKS:
        name, note = f"evenlag-{image}", f"built from commit {commit}"
        purl = f"pkg:docker/{name}@{version}"
        subject = Component("container", name, version, purl, licence=licence, note=note)
        write(f"{name}-image-{version}", subject, components_of_image(project, image))
    for path in folder.glob("*.jar"):
        purl = f"pkg:generic/{path.name}@{version}"
        jar = Component("file", path.name, version, purl, (_sha256(path),), licence)
        # They are compiled against the broker's and Spark's jars, and contain none of them.
        write(path.stem, jar, ())


def locked(project: Project) -> tuple[Pin, ...]:
    """Return all pins of the lock, those for development too."""
    return read_lock(project.text(_LOCK))


def released_packages(project: Project) -> list[Component]:
    """Return what evenlag and its extras need, without those for its development."""
    pins = locked(project)
    return _packages(closure(pins, project.released_requirements()), pins)


def components_of_image(project: Project, image: str) -> list[Component]:
    """Return what an image contains that is not ours."""
    pins = locked(project)
    parts = {
        pin.purl: pin for name in IMAGE_LOCKS[image] for pin in read_lock(project.text(f"docker/{name}.lock"))
    }
    return [
        *_packages(tuple(parts.values()), pins),
        *jar_components(project.text(_JARS), "spark", read_rules().jars),
        *image_components(project.text(f"docker/{image}/Dockerfile")),
    ]


def all_components(project: Project) -> list[Component]:
    """Return what wheel, images and sandbox bring along, each once, with what downloaded jars contain."""
    cache, text = ensure_jars(), project.text(_JARS)
    listed = [one for image in IMAGE_LOCKS for one in components_of_image(project, image)]
    listed += released_packages(project)
    listed += [one for name in _JAR_FOLDERS for one in jar_components(text, name, {}, cache)]
    return list({one.purl: one for one in listed}.values())


def _packages(pins: tuple[Pin, ...], graph: tuple[Pin, ...]) -> list[Component]:
    """Return the packages of a lock; `graph` says what needs them."""
    licences = package_licences({pin.name for pin in pins}, read_rules())
    listed = {pin.purl for pin in pins}
    return [
        Component(
            kind="library",
            name=pin.name,
            version=pin.version,
            purl=pin.purl,
            sha256=pin.sha256,
            licence=licences[pin.name],
            requires=tuple(sorted({one.purl for one in graph if pin.name in one.parents} & listed)),
            condition=pin.condition,
            parts=spark_jars(pin.version) if pin.name == "pyspark" else (),
        )
        for pin in pins
    ]


@cache
def spark_jars(version: str) -> tuple[Component, ...]:
    """Return the jars within PySpark, which has to be installed in the locked version."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None or metadata.version("pyspark") != version:
        raise ReleaseError(f"pyspark {version} is not installed, whose jars are listed: run make setup")
    return jars_inside(Path(spec.origin).parent / "jars")
