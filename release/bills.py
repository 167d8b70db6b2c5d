"""The bills of materials of a release: of the wheel, of each image, and of our jars."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from release.components import (
    Component,
    closure,
    file_component,
    image_components,
    jar_components,
    jars_inside,
    package_components,
    read_lock,
)
from release.errors import ReleaseError
from release.licences import package_licences, read_rules
from release.sbom import make_sbom
from sandbox.jars import ensure_jars

if TYPE_CHECKING:
    from collections.abc import Iterable

    from release.components import Pin
    from release.project import Project

FOLDER: Final = "sbom"
_LOCK: Final = "requirements.lock"
# The parts of the lock that an image installs.
_IMAGE_LOCKS: Final = {"airflow": ("airflow", "spark"), "spark": ("executor",)}
_JARS: Final = "sandbox/jars.sha256"
_JAR_FOLDERS: Final = ("spark", "kafka")


def write_bills(project: Project, folder: Path, *, commit: str, epoch: int) -> None:
    """Write a bill of materials for each thing that is released, to ``sbom/``.

    commit: The commit, which an image records as its revision.
    """
    (folder / FOLDER).mkdir()
    version, licence = project.version, project.licence
    for path in sorted(folder.glob("*.whl")):
        _write(folder, f"evenlag-{version}-wheel", _wheel(project, path), released_packages(project), epoch)
    for image in _IMAGE_LOCKS:
        subject = Component(
            kind="container",
            name=f"evenlag-{image}",
            version=version,
            purl=f"pkg:docker/evenlag-{image}@{version}",
            licence=licence,
            note=f"built from commit {commit}",
        )
        _write(
            folder, f"evenlag-{image}-image-{version}", subject, components_of_image(project, image), epoch
        )
    for path in sorted(folder.glob("*.jar")):
        subject = file_component(path, version=version, licence=licence)
        # They are compiled against the broker's and Spark's jars, and contain none of them.
        _write(folder, path.name.removesuffix(".jar"), subject, (), epoch)


def _write(folder: Path, name: str, subject: Component, components: Iterable[Component], epoch: int) -> None:
    text = make_sbom(subject, components, epoch=epoch)
    (folder / FOLDER / f"{name}.cdx.json").write_text(text, encoding="utf-8")


def _wheel(project: Project, path: Path) -> Component:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    purl = f"pkg:pypi/evenlag@{project.version}"
    return Component("application", "evenlag", project.version, purl, (digest,), project.licence)


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
        pin.purl: pin
        for name in _IMAGE_LOCKS[image]
        for pin in read_lock(project.text(f"docker/{name}.lock"))
    }
    return [
        *_packages(tuple(parts.values()), pins),
        *jar_components(project.text(_JARS), "spark", read_rules().jars),
        *image_components(project.text(f"docker/{image}/Dockerfile")),
    ]


def all_components(project: Project) -> list[Component]:
    """Return what wheel, images and sandbox bring along, each once, with what downloaded jars contain."""
    cache, text = ensure_jars(), project.text(_JARS)
    listed = [one for image in _IMAGE_LOCKS for one in components_of_image(project, image)]
    listed += released_packages(project)
    listed += [one for name in _JAR_FOLDERS for one in jar_components(text, name, {}, cache)]
    return list({one.purl: one for one in listed}.values())


def _packages(pins: tuple[Pin, ...], graph: tuple[Pin, ...]) -> list[Component]:
    licences = package_licences({pin.name for pin in pins})
    return [
        replace(one, parts=spark_jars(str(one.version))) if one.name == "pyspark" else one
        for one in package_components(pins, graph, licences)
    ]


@cache
def spark_jars(version: str) -> tuple[Component, ...]:
    """Return the jars within PySpark, which has to be installed in the locked version."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None or metadata.version("pyspark") != version:
        raise ReleaseError(f"pyspark {version} is not installed, whose jars are listed: run make setup")
    return jars_inside(Path(spec.origin).parent / "jars")
