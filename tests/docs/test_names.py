"""The pages name nothing that the code does not have: gates, tables, columns, settings, commands, targets."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from evenlag.cli.app import app
from evenlag.lake.tables import TABLES
from evenlag.policy.gates import GATES
from evenlag.policy.settings import Policy
from tests.support.each import for_each
from tests.support.pages.documented_names import (
    CODE_FOLDERS,
    all_options,
    code_names,
    commands_in,
    named_after,
    names_in,
    wrong_with_call,
)
from tests.support.pages.markdown import ROOT, Page, cells, named_pages

THIS_FILE = Path(__file__).resolve()
# Code, and the files that images are made of; a Dockerfile has none.
SUFFIXES = {".py", ".java", ".yaml", ".yml", ".sh", ".env", ""}
PAGES = named_pages()
COMMAND = typer.main.get_command(app)
# Names that pages mention and that are somebody else's, or were ours once.
OF_OTHERS = {
    "control_events": "docs/adr/0054: a table that development versions wrote",
    "delta_scan": "a function of DuckDB",
    "depends_on": "a key of Compose files",
    "max_active_runs": "a setting of Airflow's",
    "on_failure_callback": "a hook of Airflow's",
    "scan_delta": "a function of Polars",
    "send_offsets_to_transaction": "a method of kafka-python's producer",
    "to_pyarrow_dataset": "a method of deltalake",
    "validate_only": "a field of Kafka's CreateTopics",
}
OPTIONS_OF_OTHERS = {
    "--bootstrap-server": "Kafka's tools",
    "--check": "python -m spark_jobs.connect_server",
    "--durations": "pytest",
    "--events-fd": "python -m spark_jobs.cycle",
    "--host": "python -m spark_jobs.connect_server",
    "--jars": "spark-submit",
    "--lf": "pytest",
    "--memory": "python -m spark_jobs.connect_server",
    "--operation": "kafka-acls.sh",
    "--port": "python -m spark_jobs.connect_server",
    "--profile": "docker compose",
    "--py-files": "spark-submit",
    "--quick": "python -m tests.bench.workers",
    "--quiet": "python -m spark_jobs.cycle",
    "--ready-fd": "python -m spark_jobs.connect_server",
    "--require-hashes": "pip",
    "--store-durations": "pytest",
    "--transactional-id": "kafka-acls.sh",
    "--umask": "python -m spark_jobs.connect_server",
}
# A gate is what a plan fails; these fail as settings and tasks do.
NO_GATES = {"report": "a task", "max_broker_failures": "a setting: so many brokers may not answer"}
each_page = for_each(PAGES, lambda page: page.name)


@each_page
def test_names_are_those_of_the_code(page: Page) -> list[str]:
    return sorted(names_in(page) - code_names() - set(OF_OTHERS))


@each_page
def test_gates_are_those_that_judge(page: Page) -> list[str]:
    named = named_after(page, "gates?|fails|failed") - set(NO_GATES)
    return sorted(named - {gate.name for gate in GATES})


def test_every_gate_has_its_check_and_its_example_in_order() -> None:
    checks, examples = (
        table
        for page in PAGES
        if page.name == "docs/gates.md"
        for table in page.tables
        if "gate" in table[0][1]
    )
    names = [gate.name for gate in GATES]
    assert [cells(line)[0].strip("`") for _, line in checks[2:]] == names
    assert [cells(line)[0].strip("`") for _, line in examples[2:]] == names


@each_page
def test_tables_are_those_of_the_lake(page: Page) -> list[str]:
    return sorted(named_after(page, "tables?") - set(TABLES))


@each_page
def test_columns_are_those_of_their_tables(page: Page) -> list[str]:
    found = [span.split(".") for span in page.spans if re.fullmatch(r"[a-z_]+\.[a-z_]+", span)]
    unknown = [
        f"{table}.{column}"
        for table, column in found
        if table in TABLES and column not in TABLES[table].column_names
    ]
    # A gauge may be named like that too: `lag.records`. The code has it as a string.
    return [name for name in unknown if name not in code_names()]


@each_page
def test_calls_of_the_command_are_understood(page: Page) -> list[str]:
    return [
        f"evenlag {call}: {said}" for call in commands_in(page) if (said := wrong_with_call(COMMAND, call))
    ]


@each_page
def test_options_are_those_of_a_command(page: Page) -> list[str]:
    named = {span.split()[0].partition("=")[0] for span in page.spans if re.match(r"--[a-z]", span)}
    return sorted(named - all_options(COMMAND) - set(OPTIONS_OF_OTHERS))


@each_page
def test_targets_of_make_are_in_its_file(page: Page) -> list[str]:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        match[1]
        for text in (*page.spans, *page.code_lines)
        if (match := re.match(r"(?:\$ )?make ([a-z-]+)", text.strip()))
    }
    return sorted(named - targets)


@each_page
def test_modules_that_are_run_exist(page: Page) -> list[str]:
    named = {
        name
        for text in (*page.spans, *page.code_lines)
        for name in re.findall(r"python -m ([a-z0-9_.]+)", text)
    }
    ours = {name for name in named if name.partition(".")[0] in CODE_FOLDERS}
    return [name for name in sorted(ours) if find_spec(name) is None]


@each_page
def test_settings_are_those_of_the_policy(page: Page) -> list[str]:
    models = {model.__name__: model for model in _models(Policy)}
    by_key = {
        key: model for parent in models.values() for key, field in parent.model_fields.items()
        for model in _models_in(field.annotation)
    }  # fmt: skip
    named = [span.split(".") for span in page.spans if re.fullmatch(r"[a-z_]+\.[a-z_]+", span)]
    return [f"{key}.{name}" for key, name in named if key in by_key and name not in by_key[key].model_fields]


@each_page
def test_variables_are_read_somewhere(page: Page) -> list[str]:
    named = set(re.findall(r"\bEVENLAG_[A-Z_]*[A-Z]\b", page.path.read_text(encoding="utf-8")))
    beginnings = tuple(name for name in _variables() if name.endswith("_"))
    unread = {name for name in named - _variables() if not name.startswith(beginnings)}
    # Where a page's example keeps a secret is the example's choice: `{env: NAME}`.
    examples = {"HINT_KEY", "PRIVACY_KEY", "ORDERS_PASSWORD", "LAKE_KEY_ID"}
    return sorted(unread - {f"EVENLAG_{name}" for name in examples})


def test_a_name_that_does_not_exist_is_found(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "A plan fails `snapshot_age`, or the gate `lag`. See the table `lags`.\n", encoding="utf-8"
    )
    page = Page(path)
    assert names_in(page) - code_names() == {"snapshot_age"}
    assert named_after(page, "gates?|fails") == {"snapshot_age", "lag"}
    assert named_after(page, "tables?") == {"lags"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("plans PLAN --json", None),
        ("plans approve PLAN --reason 'looks right'  # a comment", None),
        ("hints withdraw GROUP --reason …", None),
        ("audit owner g --when now", "`owner` has no option --when"),
        ("audit ownership", "`audit` has no subcommand ownership"),
        ("lag GROUP again", "`lag` takes no argument"),
        ("lags", "has no subcommand lags"),
    ],
)
def test_a_call_is_held_against_the_command(call: str, said: str | None) -> None:
    found = wrong_with_call(COMMAND, call)
    assert (found is None) if said is None else (found is not None and said in found)


def _models(model: type[BaseModel]) -> set[type[BaseModel]]:
    """Return a model and all that are below it."""
    found = {model}
    for field in model.model_fields.values():
        for below in _models_in(field.annotation):
            found |= _models(below)
    return found


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)}


@cache
def _variables() -> frozenset[str]:
    """Names of environment variables, and beginnings of such, in code and in the images' files."""
    files = [
        path
        for folder in CODE_FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in SUFFIXES
    ]
    texts = [path.read_text(encoding="utf-8") for path in (*files, ROOT / "Makefile") if path != THIS_FILE]
    return frozenset(
        name for text in texts for name in re.findall(r"\bEVENLAG_[A-Z_]+", text) if name != "EVENLAG_"
    )
