"""Build the broker plug-in: ``python -m sandbox.kafka.broker_plugin`` writes a jar to ``dist/``.

It needs only javac and the jars of the sandbox's broker. The build is reproducible: the same sources and the
same javac give the same bytes, because the jar's entries are sorted and have no time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import tomllib
import zipfile
from pathlib import Path

from sandbox.jars import JarsError, broker_classpath

__all__ = ["ASSIGNOR_CLASS", "build_plugin", "compile_java", "find_tool"]

ASSIGNOR_CLASS = "evenlag.broker.EvenlagAssignor"
"""What a broker's ``group.consumer.assignors`` names."""

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = _ROOT / "broker_plugin" / "src"
_NO_TIME = (1980, 1, 1, 0, 0, 0)
# Brokers run on Java 17 and newer.
_RELEASE = "17"


def find_tool(name: str) -> str:
    """Return a tool of the JDK: from ``JAVA_HOME`` if set, else from the PATH.

    Raises
    ------
    JarsError
        If there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else shutil.which(name)
    if found is None:
        raise JarsError(f"no {name} found: install a JDK, version {_RELEASE} or newer")
    return found


def build_plugin(folder: Path) -> Path:
    """Compile the plug-in and return its jar, ``evenlag-broker-plugin-<version>.jar`` in `folder`.

    Raises
    ------
    JarsError
        If there is no javac, the broker's jars cannot be fetched, or compilation fails.
    """
    sources = sorted(_SOURCES.rglob("*.java"))
    if not sources:
        raise JarsError(f"{_SOURCES} has no sources: the plug-in is built in evenlag's repository")
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with tempfile.TemporaryDirectory() as temporary:
        classes = Path(temporary)
        compile_java(sources, classes, broker_classpath())
        folder.mkdir(parents=True, exist_ok=True)
        jar = folder / f"evenlag-broker-plugin-{version}.jar"
        # Write and rename: a broker that starts meanwhile finds the complete old or new jar.
        unfinished = jar.with_suffix(f".{os.getpid()}.unfinished")
        _write_jar(unfinished, classes, version)
        unfinished.replace(jar)
    return jar


def compile_java(sources: list[Path], classes: Path, class_path: str) -> None:
    """Compile Java sources; warnings are errors.

    Parameters
    ----------
    sources
        Java files.
    classes
        Folder for the class files.
    class_path
        Class path for javac.

    Raises
    ------
    JarsError
        If there is no javac, or compilation fails; javac has printed the errors.
    """
    command = [find_tool("javac"), "--release", _RELEASE, "-encoding", "UTF-8", "-Xlint:all", "-Werror"]
    # javac runs for a second or two: optimizing its own code would cost more than it saves.
    command += ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
    # Manifests of some Kafka jars refer to missing jars: javac's warning is disabled.
    command += ["-Xlint:-path", "-proc:none", "-cp", class_path, "-d", str(classes), *map(str, sources)]
    if subprocess.run(command, check=False).returncode:
        raise JarsError("javac failed; what it found stands above")


def _write_jar(jar: Path, classes: Path, version: str) -> None:
    title = "Implementation-Title: evenlag\r\nImplementation-Version"
    manifest = f"Manifest-Version: 1.0\r\n{title}: {version}\r\n\r\n"
    files = {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    entries = {
        "META-INF/MANIFEST.MF": manifest.encode("ascii"),
        "META-INF/LICENSE": (_ROOT / "LICENSE").read_bytes(),
        **dict(sorted(files.items())),
    }
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name, _NO_TIME), content, zipfile.ZIP_DEFLATED)


def main() -> None:
    """Build the plug-in and print the path of its jar."""
    parser = argparse.ArgumentParser(description="Build the plug-in that makes brokers follow hints.")
    parser.add_argument("--out", type=Path, default=_ROOT / "dist", help="folder for the jar")
    print(build_plugin(parser.parse_args().out))


if __name__ == "__main__":
    main()
