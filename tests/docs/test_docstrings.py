"""The public API documents its parameters, results and errors in numpy sections.

ruff checks that docstrings exist and how they are formatted; it does not check their content.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag import consumer
from evenlag.cli.app import app
from tests.support.each import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer

ROOT: Final = Path(__file__).resolve().parents[2]
# How the records of the hint topic are read and written: `hint` and `loads` are what others call.
INTERNAL: Final = ("record", "partition_spans", "topic_reading")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def commands(tree: typer.Typer) -> Iterator[tuple[str, str]]:
    """Module and name of each command and callback: their docstrings are help texts, without sections."""
    for info in (*tree.registered_commands, tree.registered_callback):
        if info is not None and info.callback is not None:
            yield info.callback.__module__, info.callback.__name__
    for group in tree.registered_groups:
        if group.typer_instance is not None:
            yield from commands(group.typer_instance)


COMMANDS: Final = frozenset(commands(app))


def public_functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions of a module and methods of its classes, without private, special and nested ones."""
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node.name, node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for each in node.body:
                if isinstance(each, Function) and not each.name.startswith("_"):
                    yield f"{node.name}.{each.name}", each


def section(docstring: str, name: str) -> str:
    """The text of a numpy section; empty if there is none."""
    found = re.search(rf"^{name}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def is_property(function: Function) -> bool:
    return any(
        ast.unparse(each).split(".")[-1] in {"property", "cached_property"}
        for each in function.decorator_list
    )


def faults(function: Function) -> list[str]:
    """What the docstring of a function lacks."""
    docstring = ast.get_docstring(function)
    if docstring is None:
        return ["no docstring"]
    arguments = function.args
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    names = [name for name in positional if name not in {"self", "cls"}]
    names += [each.arg for each in arguments.kwonlyargs]
    listed = set(
        re.findall(
            r"[A-Za-z_]\w*", " ".join(re.findall(r"^\S.*$", section(docstring, "Parameters"), re.MULTILINE))
        )
    )
    found = [f"parameter {name}" for name in names if len(names) > 1 and name not in listed]
    returns = None if function.returns is None else ast.unparse(function.returns)
    # One line that begins with its result, as "Return the ...", documents it.
    tells = (
        section(docstring, "Returns")
        or section(docstring, "Yields")
        or docstring.startswith(("Return", "Build"))
    )
    if returns not in {None, "None"} and len(names) > 1 and not tells and not is_property(function):
        found.append("its result")
    raised = {
        node.exc.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    }
    errors = section(docstring, "Raises")
    return found + [f"error {name}" for name in sorted(raised - {"AssertionError"}) if name not in errors]


def modules() -> list[str]:
    """Return the modules of the public API. Elsewhere a docstring says what the signature does not."""
    paths = [ROOT / "evenlag" / name for name in ("airflow/dags.py", "api.py", "errors.py", "lake/reader.py")]
    exported = {getattr(getattr(consumer, name), "__module__", None) for name in consumer.__all__}
    paths += [ROOT / f"{name.replace('.', '/')}.py" for name in sorted(filter(None, exported))]
    core = [*(ROOT / "assignor_core").glob("*.py"), *(ROOT / "assignor_core" / "assignors").glob("*.py")]
    paths += sorted(path for path in core if path.stem not in INTERNAL)
    return [path.relative_to(ROOT).as_posix() for path in paths if not path.name.startswith("_")]


@for_each(modules())
def test_public_functions_document_parameters_results_and_errors(module: str) -> dict[str, list[str]]:
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    imported = module.removesuffix(".py").replace("/", ".")

    return {
        name: lacks
        for name, function in public_functions(tree)
        if (imported, name) not in COMMANDS and (lacks := faults(function))
    }


def test_commands_and_callbacks_are_found() -> None:
    assert {
        ("evenlag.cli.lag", "lag"),
        ("evenlag.cli.hints", "stop_all"),
        ("evenlag.cli.app", "_root"),
    } <= COMMANDS


def test_what_a_docstring_lacks_is_found() -> None:
    source = '''
def good(one, two):
    """Return a sum.

    Parameters
    ----------
    one, two
        Numbers.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(one)

def bad(one, two) -> int:
    """Do it."""
    raise ValueError(one)
'''
    good, bad = (function for _, function in public_functions(ast.parse(source)))

    assert faults(good) == []
    assert faults(bad) == ["parameter one", "parameter two", "its result", "error ValueError"]
