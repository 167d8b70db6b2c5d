"""What the compose file and the Dockerfiles say, as far as the tests need it: a small reader of both."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[3]
COMPOSE_FILE = ROOT / "docker" / "compose.yaml"
SUBMIT_FILE = ROOT / "docker" / "compose.spark-submit.yaml"
ENV_EXAMPLE = ROOT / "docker" / "env.example"
"""What ``docker/.env`` is made from."""
SECRETS = (
    "POSTGRES_PASSWORD",
    "AIRFLOW_FERNET_KEY",
    "AIRFLOW_JWT_SECRET",
    "AIRFLOW_SECRET_KEY",
    "AIRFLOW_USERS",
    "AIRFLOW_PASSWORDS",
    "SPARK_CONNECT_TOKEN",
    "SPARK_CLUSTER_SECRET",
)
"""The variables without which nothing starts."""
DOCKERFILES = sorted((ROOT / "docker").glob("*/Dockerfile"))

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>\w+)(?:(?P<kind>:[-?])(?P<rest>[^{}]*))?\})")


class UnsetVariableError(ValueError):
    """A variable that the compose file insists on is unset or empty."""


@dataclass(frozen=True)
class Image:
    """What an image gives to a container: the last stage of its Dockerfile."""

    base: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Service:
    """What Compose starts for a service, image and compose file taken together.

    raw: The service as the file has it, with anchors and variables resolved.
    """

    name: str
    raw: dict[str, Any]
    image: Image

    @property
    def command(self) -> list[str]:
        """The command, the compose file's or else the image's."""
        return list(self.raw.get("command") or self.image.command)

    @property
    def environment(self) -> dict[str, str]:
        """The image's variables and over them the compose file's."""
        return self.image.environment | dict(self.raw.get("environment") or {})

    @property
    def health(self) -> list[str]:
        """The health check's command; empty for a service that has none."""
        check = self.raw.get("healthcheck") or {}
        test = check.get("test")
        if test is None:
            return [] if check.get("disable") else list(self.image.health)
        if test[0] != "CMD":
            raise ValueError(f"{self.name}: a health check of kind {test[0]}, which these tests do not know")
        return list(test[1:])

    @property
    def depends_on(self) -> dict[str, str]:
        """The condition by service."""
        return {name: what["condition"] for name, what in (self.raw.get("depends_on") or {}).items()}

    @property
    def network(self) -> str:
        """The service whose network namespace it uses, its own if no other is named."""
        return str(self.raw.get("network_mode", f"service:{self.name}")).removeprefix("service:")

    @property
    def is_job(self) -> bool:
        """Whether it ends by itself."""
        return self.raw.get("restart") == "no"


def read_variables(text: str) -> dict[str, str]:
    """Read the content of ``docker/.env``."""
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z_]+=", line))


def read_services(environment: Mapping[str, str], *more: Path) -> dict[str, Service]:
    """Read the services as Compose would with these variables, profiles included."""
    tree = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
    for path in more:
        tree = _merge(tree, yaml.safe_load(path.read_text(encoding="utf-8")))
    services = interpolate(tree["services"], environment)
    return {name: Service(name, raw, _image_of(raw)) for name, raw in services.items()}


def _merge(tree: Any, more: Any) -> Any:
    if not (isinstance(tree, dict) and isinstance(more, dict)):
        return more
    return tree | {key: _merge(tree.get(key), value) for key, value in more.items()}


def interpolate(tree: Any, environment: Mapping[str, str]) -> Any:
    """Put variables into every text of a tree: ``${A}``, ``${A:-default}``, ``${A:?message}``, ``$$``."""
    if isinstance(tree, dict):
        return {key: interpolate(value, environment) for key, value in tree.items()}
    if isinstance(tree, list):
        return [interpolate(value, environment) for value in tree]
    if not isinstance(tree, str):
        return tree

    def resolve(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        value = environment.get(match["name"], "")
        if not value and match["kind"] == ":?":
            raise UnsetVariableError(f"{match['name']}: {match['rest']}")
        return value or (match["rest"] or "" if match["kind"] == ":-" else "")

    return _REFERENCE.sub(resolve, tree)


def read_dockerfile(path: Path) -> Image:
    """Read the last stage of a Dockerfile; build arguments stay as they are written."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    last = max(number for number, line in enumerate(lines) if line.startswith("FROM "))
    found: dict[str, Any] = {"base": lines[last].split()[1], "environment": {}, "labels": {}}
    for line in lines[last + 1 :]:
        instruction, _, rest = line.partition(" ")
        if instruction in {"ENV", "LABEL"}:
            pairs = dict(pair.split("=", 1) for pair in shlex.split(rest))
            found["environment" if instruction == "ENV" else "labels"] |= pairs
        elif instruction == "CMD":
            found["command"] = tuple(json.loads(rest))
        elif instruction == "HEALTHCHECK":
            found["health"] = tuple(json.loads(rest.partition("CMD ")[2]))
        elif instruction == "USER":
            found["user"] = rest
    return Image(**found)


def _image_of(raw: Mapping[str, Any]) -> Image:
    build = raw.get("build")
    return read_dockerfile(ROOT / build["dockerfile"]) if build else Image()
