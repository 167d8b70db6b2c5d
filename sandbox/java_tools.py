"""Java's tools: the `java` and `javac` commands, and jars of this repository's sources.

Builds are reproducible: the same sources and the same compiler give the same bytes, because a jar's entries
are sorted and have no time.
"""

import os
import shutil
import subprocess
import tempfile
import tomllib
import zipfile
from pathlib import Path

from sandbox.processes import SandboxError

_ROOT = Path(__file__).resolve().parents[1]
_NO_TIME = (1980, 1, 1, 0, 0, 0)
# Brokers and Spark run on Java 17 and newer.
_RELEASE = "17"


class JarsError(SandboxError):
    """Raised when jars are missing and cannot be fetched or built; the message contains a remedy."""


def java_command() -> str:
    """Return the ``java`` command: from ``JAVA_HOME`` if set, else from the PATH."""
    return _find("java", f"install a Java runtime, version {_RELEASE} or newer")


def find_tool(name: str) -> str:
    """Return a tool of the JDK: from ``JAVA_HOME`` if set, else from the PATH."""
    return _find(name, f"install a JDK, version {_RELEASE} or newer")


def _find(name: str, remedy: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else shutil.which(name)
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise JarsError(f"no {name} found {where}: {remedy}")
    return found


def version() -> str:
    """Return evenlag's version: the checkout's, else that of the installed package."""
    file = _ROOT / "pyproject.toml"
    if file.is_file():
        return str(tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"])
    from importlib.metadata import version as installed_version

    return installed_version("evenlag")


def compile_java(sources: list[Path], classes: Path, class_path: str) -> None:
    """Compile Java sources; warnings are errors."""
    command = [find_tool("javac"), "--release", _RELEASE, "-encoding", "UTF-8", "-Xlint:all", "-Werror"]
    # javac runs for a second or two: optimizing its own code would cost more than it saves.
    command += ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
    # Jars of Kafka and Spark refer to missing jars and annotations: these warnings are disabled.
    command += ["-Xlint:-path", "-Xlint:-classfile", "-proc:none"]
    command += ["-cp", class_path, "-d", str(classes), *map(str, sources)]
    if subprocess.run(command, check=False).returncode:
        raise JarsError("javac failed; what it found stands above")


def build_jar(jar: Path, sources: list[Path], class_path: str) -> None:
    """Compile Java sources, and write the jar of their classes."""
    if not sources:
        raise JarsError(f"{jar.name} has no sources: build it in evenlag's repository")
    with tempfile.TemporaryDirectory() as temporary:
        classes = Path(temporary)
        compile_java(sources, classes, class_path)
        _write_jar(jar, classes)


def _write_jar(jar: Path, classes: Path) -> None:
    """Write a jar of class files and the licence; readers find the complete old or new jar."""
    title = "Implementation-Title: evenlag\r\nImplementation-Version"
    manifest = f"Manifest-Version: 1.0\r\n{title}: {version()}\r\n\r\n"
    files = {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    entries = {"META-INF/MANIFEST.MF": manifest.encode("ascii")}
    licence = _ROOT / "LICENSE"
    if licence.is_file():
        entries["META-INF/LICENSE"] = licence.read_bytes()
    entries |= dict(sorted(files.items()))
    jar.parent.mkdir(parents=True, exist_ok=True)
    unfinished = jar.with_suffix(f".{os.getpid()}.unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name, _NO_TIME), content, zipfile.ZIP_DEFLATED)
    unfinished.chmod(0o644)
    unfinished.replace(jar)
