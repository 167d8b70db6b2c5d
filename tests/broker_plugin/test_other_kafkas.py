"""The plug-in is built for and works in brokers of other versions, and one jar serves all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandbox.jars import OTHER_KAFKAS
from sandbox.kafka.jvm_jars import build_plugin
from tests.broker_plugin.test_assign import FOLLOWED, PLAN, SCENE
from tests.broker_plugin.test_in_a_broker import OTHER_PLAN, make_scene
from tests.broker_plugin.test_in_a_broker import PLAN as BROKER_PLAN
from tests.broker_plugin.test_loads import JOINED, LOADS
from tests.support.broker_plugin.harness import Harness
from tests.support.broker_plugin.node import start_node
from tests.support.broker_plugin.problems import hint, loads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: it is the extra kip848")
pytestmark = [pytest.mark.broker, pytest.mark.soak]
# The plug-in works from 4.1 on.
PLUGIN_KAFKAS = tuple(version for version in OTHER_KAFKAS if version not in ("3.9", "4.0"))


@pytest.mark.parametrize("kafka", PLUGIN_KAFKAS)
def test_plug_in_of_another_kafka(
    plugin_jar: Path, unique: Callable[[str], str], tmp_path: Path, kafka: str
) -> None:
    built = build_plugin(tmp_path, kafka=kafka)
    for name, jar in (("same", built), ("sandbox", plugin_jar)):
        folder = tmp_path / name
        classes = folder / "classes"
        classes.mkdir(parents=True)
        with Harness(jar, classes, kafka=kafka) as harness:
            assert SCENE.read(hint(SCENE.payload(PLAN))).ask(harness)["assignment"] == FOLLOWED
            placed = JOINED.read(loads(SCENE.loads(LOADS))).ask(harness)
            assert placed["counts"] == {"PLACED_BY_LOAD": 1}
            node = start_node(folder, jar, harness, kafka=kafka)
            try:
                with make_scene(node, unique, folder) as scene:
                    scene.follow(BROKER_PLAN)
                    scene.follow(OTHER_PLAN)
                    scene.finish()
                assert node.figures()["InternalErrorTotal"] == 0
            finally:
                node.broker.kill()
