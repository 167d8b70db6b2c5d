"""The container files by themselves: Compose's schema, pinned, locked down, locks that are parts of ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from evenlag.policy.loader import load_policy
from tests.support.containers.compose_file import (
    COMPOSE_FILE,
    DOCKERFILES,
    ENV_EXAMPLE,
    ROOT,
    SECRETS,
    SUBMIT_FILE,
    Service,
    UnsetVariableError,
    read_dockerfile,
    read_services,
)

if TYPE_CHECKING:
    from pathlib import Path

SERVICES = read_services(dict.fromkeys(SECRETS, "x"))
NETWORK = "scheduler-network"
LOCKS = ("airflow", "spark", "executor", "build", "setuptools")
every_service = pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))
every_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_the_compose_file_follows_the_specification(tmp_path: Path) -> None:
    check = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    for path in (COMPOSE_FILE, SUBMIT_FILE):
        done = run(*check, str(path))
        assert done.returncode == 0, done.stdout

    wrong = tmp_path / "compose.yaml"
    wrong.write_text(
        COMPOSE_FILE.read_text(encoding="utf-8").replace("cap_drop:", "cap_dropped:"), encoding="utf-8"
    )
    assert run(*check, str(wrong)).returncode == 1


@pytest.mark.parametrize("name", SECRETS)
def test_nothing_starts_without_a_secret(name: str) -> None:
    with pytest.raises(UnsetVariableError, match=name):
        read_services(dict.fromkeys(SECRETS, "x") | {name: ""})


def test_the_example_names_every_variable_and_gives_no_secret_a_value() -> None:
    text = ENV_EXAMPLE.read_text(encoding="utf-8")
    given = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"#?[A-Z_]+=", line))
    used = set(re.findall(r"\$\{(\w+)", COMPOSE_FILE.read_text(encoding="utf-8")))
    assert used >= set(re.findall(r"\$\{(\w+)", SUBMIT_FILE.read_text(encoding="utf-8")))
    assert {name.lstrip("#") for name in given} == used
    assert {name for name, value in given.items() if not value} == set(SECRETS)
    for name, value in given.items():
        if name.startswith("#"):
            assert f"${{{name[1:]}:-{value}}}" in COMPOSE_FILE.read_text(encoding="utf-8")


@every_service
def test_a_service_has_a_health_check_limits_and_no_way_to_more_rights(service: Service) -> None:
    raw = service.raw
    assert raw["security_opt"] == ["no-new-privileges:true"]
    assert raw["cap_drop"] == ["ALL"]
    assert set(raw["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    assert raw.get("read_only", False) == (service.name != "kafka")
    assert not {"privileged", "pid", "cap_add"} & set(raw)
    assert bool(service.health) != (service.is_job or service.name == NETWORK)


def test_the_server_is_reachable_in_the_scheduler_s_network_namespace_only() -> None:
    shared = {name for name, service in SERVICES.items() if service.network == NETWORK}
    assert shared == {NETWORK, "airflow-scheduler", "spark-connect"}
    others = {name: service for name, service in SERVICES.items() if name not in shared}
    assert all(service.network == name for name, service in others.items())
    assert not any("ports" in SERVICES[name].raw for name in shared)
    command = SERVICES["spark-connect"].command
    assert command[command.index("--host") + 1] == "127.0.0.1"
    # Docker refuses a host name of its own beside another service's network.
    assert not any("hostname" in SERVICES[name].raw for name in shared - {NETWORK})


def holders(secret: str) -> set[str]:
    """The services whose environment has a secret, also within a value."""
    services = read_services(dict.fromkeys(SECRETS, "x") | {secret: "a-secret"})
    return {
        name
        for name, service in services.items()
        if any("a-secret" in value for value in service.environment.values())
    }


AIRFLOW = {"airflow-init", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor"}


@pytest.mark.parametrize(
    ("secret", "services"),
    [
        ("POSTGRES_PASSWORD", AIRFLOW | {"postgres"}),
        ("AIRFLOW_FERNET_KEY", AIRFLOW),
        ("AIRFLOW_JWT_SECRET", AIRFLOW),
        ("AIRFLOW_SECRET_KEY", AIRFLOW),
        ("AIRFLOW_PASSWORDS", {"airflow-init"}),
        ("SPARK_CONNECT_TOKEN", {"airflow-scheduler", "spark-connect"}),
        ("SPARK_CLUSTER_SECRET", {"spark-master", "spark-worker-1", "spark-worker-2"}),
    ],
)
def test_a_secret_is_in_the_services_that_need_it(secret: str, services: set[str]) -> None:
    assert holders(secret) == services


def test_the_server_wants_a_token_and_the_scheduler_s_connection_has_it() -> None:
    server = SERVICES["spark-connect"]
    assert server.environment["EVENLAG_SPARK_TOKEN"] == "x"
    connection = json.loads(SERVICES["airflow-scheduler"].environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert connection["conn_type"] == "spark_connect"
    assert connection["password"] == "x"
    assert connection["host"] == server.environment["EVENLAG_SPARK_REMOTE"]
    assert connection["host"].rpartition(":")[2] == server.command[server.command.index("--port") + 1]


def test_the_standalone_cluster_starts_on_request_only() -> None:
    cluster = {name for name, service in SERVICES.items() if service.raw.get("profiles") == ["cluster"]}
    assert cluster == {"spark-master", "spark-worker-1", "spark-worker-2"}
    needed = {name for service in SERVICES.values() for name in service.depends_on}
    assert needed & cluster == {"spark-master"}  # by its workers
    submitting = read_services(dict.fromkeys(SECRETS, "x"), SUBMIT_FILE)
    scheduler = submitting["airflow-scheduler"]
    assert scheduler.depends_on["spark-master"] == "service_healthy"
    connection = json.loads(scheduler.environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert (connection["conn_type"], connection["host"]) == ("spark", "spark://spark-master:7077")
    assert scheduler.environment["EVENLAG_SPARK_CLUSTER_SECRET"] == "x"
    for name in ("spark-master", "spark-worker-1", "spark-worker-2", "airflow-scheduler"):
        assert submitting[name].command[:2] == ["python", "/opt/evenlag/spark_secret.py"]
    # A service of a profile that is not started may be missing only where the file says so.
    assert submitting["spark-connect"].raw["profiles"] == ["connect"]
    assert scheduler.raw["depends_on"]["spark-connect"]["required"] is False


def mounts(name: str) -> set[str]:
    return {mount.split(":")[0] for mount in SERVICES[name].raw.get("volumes", ())} & {"airflow", "lake"}


def test_services_have_users_of_their_own_and_share_the_lake_by_its_group() -> None:
    users = {name: str(service.raw.get("user") or service.image.user) for name, service in SERVICES.items()}
    assert {users[name] for name in AIRFLOW} == {"10001:10001"}
    assert {users[name] for name in SERVICES if name.startswith("spark-")} == {"10002:10010"}
    assert users["demo"] == "10003:10003"
    assert users["postgres"] == "postgres"
    assert {name for name in SERVICES if "airflow" in mounts(name)} == AIRFLOW
    with_lake = {name for name in SERVICES if "lake" in mounts(name)}
    assert with_lake == {
        *("airflow-api-server", "airflow-scheduler"),
        *("spark-connect", "spark-worker-1", "spark-worker-2"),
    }
    for name in with_lake:
        assert users[name].endswith(":10010") or SERVICES[name].raw["group_add"] == ["10010"]
    assert "lake:/lake:ro" in SERVICES["airflow-api-server"].raw["volumes"]


@every_dockerfile
def test_the_lake_is_shared_with_a_group_and_nothing_is_open_to_others(path: Path) -> None:
    folders = re.findall(
        r"install --directory ((?:--\S+ )*)(/.*?)(?: \\)?$", path.read_text("utf-8"), re.MULTILINE
    )
    modes = {folder: options for options, names in folders for folder in names.split()}
    assert modes["/lake"].startswith("--mode=2770")
    assert modes["/lake"].endswith("--group=lake ")
    assert all(
        "--mode=0700" in modes[name] or "--mode=2770" in modes[name] for name in modes if "/var" in name
    )


@every_service
def test_ports_are_open_to_this_machine_only(service: Service) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.raw.get("ports", ()))


@every_service
def test_images_are_pinned_by_a_version(service: Service) -> None:
    assert re.fullmatch(r"[a-z/-]+:\d+\.\d+(\.\d+)?[a-z-]*", service.raw["image"])


@every_service
def test_a_service_waits_for_what_is_well_or_done(service: Service) -> None:
    for name, condition in service.depends_on.items():
        wanted = "service_completed_successfully" if SERVICES[name].is_job else "service_healthy"
        assert condition == ("service_started" if name == NETWORK else wanted)


@every_dockerfile
def test_an_image_has_labels_a_user_without_rights_and_a_health_check(path: Path) -> None:
    image = read_dockerfile(path)
    assert image.user == {"airflow": "10001:10001", "spark": "10002:10010"}[path.parent.name]
    assert image.health
    assert image.command
    named = {key.removeprefix("org.opencontainers.image.") for key in image.labels}
    assert named == {"title", "description", "licenses", "version", "revision"}


@every_dockerfile
def test_an_image_is_pinned_and_installs_by_hashes_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    default = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, flags=re.MULTILINE)
    assert default == [SERVICES["spark-master"].raw["build"]["args"]["PYTHON_IMAGE"]]
    assert set(re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    installs = re.findall(r"pip install ([^&\n]+)", text)
    assert installs
    assert all("--require-hashes" in line or "--no-deps --no-index" in line for line in installs)
    # What builds a source package is installed by its hash, too.
    from_source = [line for line in installs if "--no-binary" in line]
    assert from_source
    assert all("--no-build-isolation" in line for line in from_source)
    assert "-r /locks/setuptools.lock" in text


@every_dockerfile
def test_what_an_image_copies_is_in_the_build_context(path: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {str(file) for line in ignored if line.startswith("!") for file in ROOT.glob(line[1:])}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for source in (name for line in copied for name in line.split()):
        assert str(ROOT / source) in allowed


def test_both_images_have_the_executors_interpreter_at_one_path() -> None:
    # In client mode an executor starts the interpreter that the driver names.
    driver, worker = SERVICES["airflow-scheduler"].environment, SERVICES["spark-worker-1"].environment
    for name in ("PYSPARK_PYTHON", "SPARK_HOME"):
        assert driver[name] == worker[name]


def pins(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes by package of a lock file."""
    blocks = re.split(r"\n(?=\S)", path.read_text(encoding="utf-8"))
    found = {}
    for block in blocks:
        if match := re.match(r"([\w.-]+)==([^\s;\\]+)", block):
            found[match[1]] = (match[2], frozenset(re.findall(r"sha256:(\w{64})", block)))
    return found


@pytest.mark.parametrize("name", [*(f"docker/{name}" for name in LOCKS), ".ci/setup"])
def test_a_smaller_lock_is_a_part_of_ours(name: str) -> None:
    whole, part = pins(ROOT / "requirements.lock"), pins(ROOT / f"{name}.lock")
    assert part
    assert {package: whole.get(package) for package in part} == part


def test_the_images_keep_airflow_and_spark_apart() -> None:
    airflow, spark, executor = (set(pins(ROOT / "docker" / f"{name}.lock")) for name in LOCKS[:3])
    assert {"apache-airflow", "psycopg", "asyncpg", "deltalake"} <= airflow
    assert not {"pyspark", "delta-spark", "great-expectations"} & airflow
    assert {"pyspark", "delta-spark", "great-expectations", "kafka-python"} <= spark
    assert not {"apache-airflow", "apache-airflow-core"} & (spark | executor)
    assert {"pyspark", "numpy", "pyarrow", "pandas", "kafka-python"} <= executor
    assert not {"great-expectations", "pydantic"} & executor


def test_the_mounted_policy_is_a_policy() -> None:
    policy = load_policy(ROOT / "docker" / "evenlag.yaml").policy
    assert policy.lake == "/lake"
    assert policy.clusters["main"].bootstrap_servers == ("kafka:9092",)
