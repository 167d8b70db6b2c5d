"""Bills of materials: what the locks pin is in them, once, and the same commit gives the same text."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from release.project import ROOT, Project, ReleaseError
from release.sbom import (
    Component,
    all_components,
    closure,
    components_of_image,
    image_components,
    jar_components,
    jars_inside,
    locked,
    make_sbom,
    read_lock,
    released_packages,
    spark_jars,
)

EPOCH = 1_700_000_000
A, B, C = ("a" * 64, "b" * 64, "c" * 64)
LOCK = f"""alpha==1.0 \\
    --hash=sha256:{B} \\
    --hash=sha256:{A}
    # via evenlag (pyproject.toml)
Beta.Two==2.1 ; python_full_version < '3.12' \\
    --hash=sha256:{C}
    # via
    #   alpha
    #   gamma
beta-two==2.2 ; python_full_version >= '3.12' \\
    --hash=sha256:{A}
    # via
    #   alpha
    #   gamma
gamma==3 \\
    --hash=sha256:{C}
    # via evenlag (pyproject.toml)
"""


def test_a_lock_is_read_with_hashes_conditions_and_who_asks() -> None:
    pins = read_lock(LOCK)
    assert [(pin.name, pin.version, pin.condition) for pin in pins] == [
        ("alpha", "1.0", None),
        ("beta-two", "2.1", "python_full_version < '3.12'"),
        ("beta-two", "2.2", "python_full_version >= '3.12'"),
        ("gamma", "3", None),
    ]
    assert pins[0].sha256 == (A, B)
    assert pins[0].parents == {"evenlag"}
    assert pins[1].parents == {"alpha", "gamma"}
    assert [pin.purl for pin in closure(pins, ["alpha"])] == [
        "pkg:pypi/alpha@1.0",
        "pkg:pypi/beta-two@2.1",
        "pkg:pypi/beta-two@2.2",
    ]
    with pytest.raises(ReleaseError, match="no hash of delta"):
        read_lock("delta==1\n    # via evenlag (pyproject.toml)\n")


def test_every_line_of_every_lock_is_read() -> None:
    for path in (ROOT / "requirements.lock", *sorted((ROOT / "docker").glob("*.lock"))):
        text = path.read_text(encoding="utf-8")
        pins = read_lock(text)
        assert len(pins) == len(re.findall(r"^\S+==", text, flags=re.MULTILINE))
        assert sum(len(pin.sha256) for pin in pins) == text.count("--hash=sha256:")


def test_the_released_packages_are_those_of_users() -> None:
    pins = {pin.name for pin in closure(locked(Project()), Project().released_requirements())}
    assert {
        "numpy",
        "kafka-python",
        "pyspark",
        "apache-airflow",
        "psycopg",
        "confluent-kafka",
        "rich",
    } <= pins
    assert not {"pytest", "ruff", "mypy", "selenium", "hatchling"} & pins


def bill(components: list[Component]) -> dict[str, Any]:
    subject = Component("application", "evenlag", "1", "pkg:pypi/evenlag@1", (A,), "Apache-2.0")
    text = make_sbom(subject, components, epoch=EPOCH)
    assert text == make_sbom(subject, list(reversed(components)), epoch=EPOCH)
    tree: dict[str, Any] = json.loads(text)
    return tree


def references(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        own = [tree["bom-ref"]] if "bom-ref" in tree else []
        return own + [found for value in tree.values() for found in references(value)]
    return [found for value in tree for found in references(value)] if isinstance(tree, list) else []


def test_a_bill_is_as_the_format_has_it() -> None:
    part = Component("library", "inner", "9", "pkg:generic/inner@9", (C,))
    one = Component("library", "one", "1", "pkg:pypi/one@1", (A,), "MIT", ("pkg:pypi/two@2",), parts=(part,))
    two = Component("library", "two", "2", "pkg:pypi/two@2", (A, B), condition="os_name == 'nt'")
    tree = bill([one, two])
    assert (tree["bomFormat"], tree["specVersion"], tree["version"]) == ("CycloneDX", "1.6", 1)
    assert tree["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert tree["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": A}]
    assert tree["components"] == [
        {
            "type": "library",
            "bom-ref": "pkg:pypi/one@1",
            "name": "one",
            "version": "1",
            "purl": "pkg:pypi/one@1",
            "hashes": [{"alg": "SHA-256", "content": A}],
            "licenses": [{"expression": "MIT"}],
            "components": [
                {
                    "type": "library",
                    "bom-ref": "pkg:pypi/one@1#0-pkg:generic/inner@9",
                    "name": "inner",
                    "version": "9",
                    "purl": "pkg:generic/inner@9",
                    "hashes": [{"alg": "SHA-256", "content": C}],
                }
            ],
        },
        {
            "type": "library",
            "bom-ref": "pkg:pypi/two@2",
            "name": "two",
            "version": "2",
            "purl": "pkg:pypi/two@2",
            "properties": [
                {"name": "evenlag:condition", "value": "os_name == 'nt'"},
                {"name": "evenlag:sha256", "value": f"{A} {B}"},
            ],
        },
    ]
    assert tree["dependencies"] == [
        {"ref": "pkg:pypi/evenlag@1", "dependsOn": ["pkg:pypi/one@1"]},
        {"ref": "pkg:pypi/one@1", "dependsOn": ["pkg:pypi/two@2"]},
    ]
    assert tree["serialNumber"] != bill([one])["serialNumber"]


@pytest.mark.parametrize(("image", "locks"), [("airflow", ("airflow", "spark")), ("spark", ("executor",))])
def test_the_bill_of_an_image_has_each_of_its_packages_once(image: str, locks: tuple[str, ...]) -> None:
    tree = bill(components_of_image(Project(), image))
    shown = [one["purl"] for one in tree["components"]]
    wanted = {
        f"pkg:pypi/{canonicalize_name(name)}@{version}"
        for lock in locks
        for name, version in re.findall(
            r"^([\w.-]+)==([^\s;\\]+)", (ROOT / "docker" / f"{lock}.lock").read_text("utf-8"), re.MULTILINE
        )
    }
    assert {purl for purl in shown if purl.startswith("pkg:pypi/")} == wanted
    assert {re.split("[/@]", purl)[-2] for purl in shown if "maven" in purl} == {
        "delta-spark_4.1_2.13",
        "delta-storage",
    }
    assert "pkg:deb/debian/openjdk-17-jre-headless?distro=bookworm" in shown
    assert any(purl.startswith("pkg:docker/python@3.11") for purl in shown)
    names = references(tree)
    assert len(names) == len(set(names))
    refs = {one["ref"] for one in tree["dependencies"]} | {
        ref for one in tree["dependencies"] for ref in one["dependsOn"]
    }
    assert refs <= set(names)


def test_the_wheel_s_bill_lists_the_jars_within_pyspark() -> None:
    [spark] = [one for one in released_packages(Project()) if one.name == "pyspark"]
    purls = {part.purl for part in spark.parts}
    assert any(purl.startswith("pkg:maven/org.apache.spark/spark-core_2.13@4.1") for purl in purls)
    assert len(spark.parts) > 200
    assert spark.licence == "Apache-2.0"


def write_jar(path: Path, *projects: tuple[str, str, str]) -> None:
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("empty", "")
        for group, name, version in projects:
            text = f"#Created by Maven\ngroupId={group}\nartifactId={name}\nversion={version}\n"
            jar.writestr(f"META-INF/maven/{group}/{name}/pom.properties", text)


def test_jars_are_identified_by_their_maven_data_or_their_name(tmp_path: Path) -> None:
    tool, other = ("org.example", "tool", "1.2-rc1"), ("org.other", "tool", "1.2")
    write_jar(tmp_path / "fat-3.0.jar", tool, ("org.example", "fat", "3.0"), other, ("a", "b", "${version}"))
    write_jar(tmp_path / "scala-library-2.13.17.jar", tool)
    write_jar(tmp_path / "tool-1.2-rc1.jar", tool)
    write_jar(tmp_path / "tool-1.2-rc1-linux-x86_64.jar", tool, other)
    found = {one.purl: [part.purl for part in one.parts] for one in jars_inside(tmp_path)}
    tools = ["pkg:maven/org.example/tool@1.2-rc1", "pkg:maven/org.other/tool@1.2"]
    assert found == {
        "pkg:maven/org.example/fat@3.0": tools,
        "pkg:maven/org.scala-lang/scala-library@2.13.17": tools[:1],
        f"{tools[0]}?classifier=linux-x86_64": tools[1:],
        tools[0]: [],
    }
    digest = hashlib.sha256((tmp_path / "fat-3.0.jar").read_bytes()).hexdigest()
    assert jars_inside(tmp_path)[0].sha256 == (digest,)


def test_a_jar_without_a_coordinate_is_named(tmp_path: Path) -> None:
    write_jar(tmp_path / "odd.jar")
    write_jar(tmp_path / "shaded-3.0.jar", ("org.example", "tool", "1.2"))
    write_jar(tmp_path / "tool-1.2.jar", ("org.example", "tool", "1.2"))
    with pytest.raises(ReleaseError, match=r"coordinate of odd\.jar, shaded-3\.0\.jar: .*jar_groups\.toml"):
        jars_inside(tmp_path)


def test_every_jar_has_a_coordinate_and_what_is_shaded_into_it_too() -> None:
    components = all_components(Project())
    purls = {one.purl for one in components} | {part.purl for one in components for part in one.parts}
    [spark] = [one for one in components if one.name == "pyspark"]
    assert {part.purl.split("/")[0] for part in spark.parts} == {"pkg:maven"}
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    assert len(spark.parts) == len(list((Path(spec.origin).parent / "jars").glob("*.jar")))
    shaded = {part.purl for jar in spark.parts for part in jar.parts}
    assert any(purl.startswith("pkg:maven/org.eclipse.jetty/jetty-server@11.") for purl in shaded)
    assert any(purl.startswith("pkg:maven/com.nimbusds/nimbus-jose-jwt@9.") for purl in shaded)
    for path in (ROOT / "sandbox").glob("*.sha256"):
        text = path.read_text(encoding="utf-8")
        folders = {line.partition("  ")[2].partition("/")[0] for line in text.splitlines()}
        assert sum(len(jar_components(text, folder, {})) for folder in folders) == len(text.splitlines())
    assert "pkg:maven/io.delta/delta-storage@4.4.0" in purls
    assert "pkg:maven/org.bitbucket.b_c/jose4j@0.9.6" in purls


def test_the_jars_listed_are_those_of_the_locked_pyspark() -> None:
    with pytest.raises(ReleaseError, match=r"pyspark 4\.0\.0 is not installed"):
        spark_jars("4.0.0")


def test_a_list_of_jars_is_read() -> None:
    text = f"{A}  spark/com.example_tool_2.13-1.5.6-10.jar\n{B}  kafka/org.example_other-1.jar\n"
    [jar] = jar_components(text, "spark", {"com.example:tool_2.13": "MIT"})
    assert (jar.purl, jar.sha256, jar.licence) == ("pkg:maven/com.example/tool_2.13@1.5.6-10", (A,), "MIT")
    for name in ("spark", "kafka"):
        jars = (ROOT / "sandbox" / "jars.sha256").read_text(encoding="utf-8")
        assert len(jar_components(jars, name, {})) == jars.count(f"  {name}/")


def test_a_base_image_has_its_digest_where_one_is_pinned() -> None:
    dockerfile = "ARG PYTHON_IMAGE=python:3.11-slim{}\nFROM x\nFROM y\nRUN apt-get install --yes jre \\\n\n"
    by_tag, java = image_components(dockerfile.format(""))
    assert (by_tag.purl, by_tag.sha256) == ("pkg:docker/python@3.11-slim", ())
    assert by_tag.note is not None
    by_digest = image_components(dockerfile.format(f"@sha256:{A}"))[0]
    assert (by_digest.sha256, by_digest.note) == ((A,), None)
    assert java.name == "jre"
    with pytest.raises(ReleaseError, match="no ARG PYTHON_IMAGE"):
        image_components("FROM scratch\n")
