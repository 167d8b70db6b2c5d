"""Files, modules and imports that pages name exist, and so do the pages that the code names."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.support.each import for_each
from tests.support.pages.documented_names import CODE_FOLDERS
from tests.support.pages.markdown import ROOT, Page, named_pages

PAGES = named_pages()
FOLDERS = "|".join((*CODE_FOLDERS, "docs", "examples"))
# Folders that a run creates, and files that a wheel has.
NOT_IN_A_CHECKOUT = ("docker/.env", "evenlag/_bundled/")
# Settings and loggers of the Java parts, classes of theirs, metrics as Airflow has them, the policy file.
OF_OTHER_KINDS = re.compile(
    r"evenlag\.(?:broker|client|required|signing|hint|bootstrap|consumer\.(?:sasl|ssl)|check|forget|max|snapshot|lag|plans"
    r"|outcomes|approvals|alerts|yaml)\b"
)
each_page = for_each(PAGES, lambda page: page.name)


@each_page
def test_files_that_pages_name_exist(page: Page) -> list[str]:
    named = {span.rstrip("/") for span in page.spans if re.fullmatch(rf"(?:{FOLDERS})/[\w./-]+", span)}
    wanted = {name for name in named if not f"{name}/".startswith(NOT_IN_A_CHECKOUT)}
    return sorted(name for name in wanted if not (ROOT / name).exists())


@each_page
def test_modules_that_pages_name_exist(page: Page) -> list[str]:
    packages = "assignor_core|evenlag|spark_jobs|sandbox"
    named = {span for span in page.spans if re.fullmatch(rf"(?:{packages})(?:\.[A-Za-z_]+)+", span)}
    return [name for name in sorted(named) if not OF_OTHER_KINDS.match(name) and not _exists(name)]


@each_page
def test_imports_in_examples_work(page: Page) -> None:
    lines = [line for line in page.code_lines if re.match(r"from (?:assignor_core|evenlag)\S* import ", line)]
    for line in lines:
        (statement,) = ast.parse(line.split("#")[0]).body
        assert isinstance(statement, ast.ImportFrom)
        module = import_module(statement.module or "")
        assert [alias.name for alias in statement.names if not hasattr(module, alias.name)] == []


def test_pages_that_the_code_names_exist() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for folder in CODE_FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert sorted(pair for pair in named if not (ROOT / pair[1]).exists()) == []


def _exists(name: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    module, _, last = name.rpartition(".")
    try:
        return hasattr(import_module(module), last) or find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("evenlag.policy.settings", True),
        ("evenlag.policy.settings.Policy", True),
        ("evenlag.policy.nothing", False),
        ("evenlag.nothing.at.all", False),
    ],
)
def test_a_name_that_is_no_module_is_found(name: str, is_there: bool) -> None:
    assert _exists(name) is is_there
