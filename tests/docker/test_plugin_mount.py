"""The compose file that gives the broker the plug-in, held against how the image reads settings."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from sandbox.jars import broker_classpath
from sandbox.java_tools import java_command
from sandbox.kafka.jvm_jars import ASSIGNOR_CLASS
from tests.support.containers.compose_file import ROOT, SECRETS, read_services

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.containers.compose_file import Service

pytestmark = pytest.mark.extended

OVERLAY = ROOT / "docker" / "compose.plugin.yaml"


@pytest.fixture(scope="module")
def overlay() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(OVERLAY.read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def kafka() -> Service:
    return read_services(dict.fromkeys(SECRETS, "x"))["kafka"]


def test_it_follows_the_specification_and_changes_nothing_but_the_broker(overlay: dict[str, Any]) -> None:
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(OVERLAY),
    ]
    done = subprocess.run(check, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout
    assert set(overlay["services"]) == {"kafka"}
    assert set(overlay["services"]["kafka"]) == {"environment", "volumes"}
    assert overlay["services"]["kafka"]["volumes"] == ["../dist:/opt/evenlag/plugin:ro"]


@pytest.mark.broker
def test_the_image_s_own_set_up_finds_the_plug_in_by_these_settings(
    overlay: dict[str, Any], kafka: Service, plugin_jar: Path, tmp_path: Path
) -> None:
    """Kafka's wrapper makes the broker's settings of the environment and formats its folder with them."""
    added = dict(overlay["services"]["kafka"]["environment"])
    mounted = added.pop("CLASSPATH").replace("/opt/evenlag/plugin", str(plugin_jar.parent))
    folders = {name: tmp_path / name for name in ("default", "mounted", "final", "data")}
    for folder in folders.values():
        folder.mkdir()
    (folders["final"] / "server.properties").touch()
    environment = {**kafka.environment, **added, "KAFKA_LOG_DIRS": str(folders["data"])}
    given = [f"--{name}-configs-dir={folders[name]}" for name in ("default", "mounted", "final")]
    # The shell of the image's script expands no asterisk either: Java does.
    command = [java_command(), "-XX:TieredStopAtLevel=1", "-cp", f"{mounted}{os.pathsep}{broker_classpath()}"]
    done = subprocess.run(
        [*command, "kafka.docker.KafkaDockerWrapper", "setup", *given],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    settings = (folders["final"] / "server.properties").read_text(encoding="utf-8")
    assert f"group.consumer.assignors=uniform,range,{ASSIGNOR_CLASS}" in settings.splitlines()
    assert (folders["data"] / "meta.properties").exists()
