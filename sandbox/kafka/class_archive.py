"""Make the sandbox's brokers start faster with an archive of their classes.

A broker that serves one test spends most of its time on loading and verifying some 10,000 classes. Java's
class data sharing keeps them ready in a file, which ``python -m sandbox.kafka.class_archive_training`` makes.
Measured: a broker that is formatted, started and asked took 2.7 s of processor time instead of 4.5 s.

The archive is only an optimization: with another Java, other jars or no file, Java silently loads the classes
as usual.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from evenlag.private_files import is_safe_from_others
from sandbox.jars import broker_classpath, cache_dir, java_command

QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_file() -> Path:
    """Return where the archive for this Java and the sandbox's own Kafka is, whether it exists or not."""
    digest = hashlib.sha256()
    for name in (str(Path(java_command()).resolve()), *broker_classpath().split(os.pathsep)):
        status = Path(name).stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return cache_dir() / f"kafka-{digest.hexdigest()[:16]}.jsa"


def archive_options() -> list[str]:
    """Return the options by which a JVM of the sandbox's own Kafka uses the archive; none without one.

    The class path of the JVM has to begin with that of the broker: Java compares it.
    """
    archive = archive_file()
    if not is_safe_from_others(archive):
        return []
    # At its own address it is not copied into memory.
    place = ["-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"]
    return [f"-XX:SharedArchiveFile={archive}", *place, *QUIET]
