"""Build evenlag's jars: ``python -m sandbox.kafka.jvm_jars`` writes the plug-in and the client to ``dist/``.

The plug-in is for brokers, the client for Java consumers of the classic protocol. Both contain the core
(``jvm/core``), so each is one jar. Building needs only javac and the jars of Kafka.
"""

import argparse
from pathlib import Path

from sandbox.jars import broker_classpath, classpath_of
from sandbox.java_tools import build_jar, version

ASSIGNOR_CLASS = "evenlag.broker.EvenlagAssignor"
"""What a broker's ``group.consumer.assignors`` names."""

CLIENT_ASSIGNOR_CLASS = "evenlag.client.EvenlagAssignor"
"""What a Java consumer's ``partition.assignment.strategy`` names."""

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = _ROOT / "jvm"


def build_plugin(folder: Path, *, kafka: str | None = None) -> Path:
    """Compile the plug-in against a version of Kafka, None for the sandbox's own, and return its jar."""
    return _build(folder / f"evenlag-broker-plugin-{version()}.jar", "broker", broker_classpath(kafka))


def build_client(folder: Path) -> Path:
    """Compile the client against Kafka's oldest that is supported, and return its jar."""
    return _build(folder / f"evenlag-client-{version()}.jar", "client", classpath_of("client_3_7"))


def _build(jar: Path, part: str, class_path: str) -> Path:
    sources = [path for name in ("core", part) for path in sorted((_SOURCES / name).rglob("*.java"))]
    build_jar(jar, sources, class_path)
    return jar


def main() -> None:
    """Build both jars and print their paths."""
    parser = argparse.ArgumentParser(
        description="Build the jars that make brokers and Java consumers follow hints."
    )
    parser.add_argument("--out", type=Path, default=_ROOT / "dist", help="folder for the jars")
    folder = parser.parse_args().out
    print(build_plugin(folder))
    print(build_client(folder))


if __name__ == "__main__":
    main()
