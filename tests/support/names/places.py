"""Places that print a text which may contain a name from Kafka, without a helper of ``evenlag.safe_text``.

Each kind of output has rules over the syntax tree:

- a stream (``print``, ``typer.echo``, ``sys.stderr.write``), an operator's own log and an exception of
  Airflow take texts that are safe;
- a logger is one of ``named_logger``, and handlers and formats are set up in one module;
- a terminal is the console of ``evenlag.cli.console``, without markup;
- a CSV file is written by ``evenlag.cli.export``;
- an f-string with elements of HTML, and each f-string of a page in Markdown, contains safe texts only.

A text is safe if it is constant, a number by its format, the result of a helper, or made of safe texts: a
name that the function assigns, a local function, a join, a condition.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_ELEMENT: Final = re.compile(r"</?[A-Za-z!]")
_NUMERIC: Final = re.compile(r"[,_]?(\.\d+)?[dfge%,]|,")
_STREAMS: Final = frozenset({"print", "typer.echo", "click.echo", "warnings.warn"})
_WRITES: Final = frozenset({"stdout.write", "stderr.write", "__stderr__.write", "__stdout__.write"})
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_SET_UP: Final = frozenset({"basicConfig", "StreamHandler", "FileHandler", "dictConfig"})
_MARKUP: Final = frozenset({"from_markup", "rich.print", "render_markup", "Markdown", "Console"})
_CSV: Final = frozenset({"csv.writer", "csv.DictWriter", "to_csv", "write_csv"})

# What returns a text without anything that its kind of output interprets.
_NUMBERS: Final = frozenset(
    {
        "number",
        "percent",
        "duration",
        "moment",
        "at_least",
        "at_least_of",
        "bounded",
        "bounded_duration",
        "count_of",
        "exact_of",
    }
) | {"len", "int", "float", "round", "sum", "max", "min", "isoformat", "export_rows", "version"}
_PLAIN: Final = _NUMBERS | {"printable", "printable_lines", "log_text", "dumps", "print_error"}
_HTML: Final = _NUMBERS | {
    "page_text", "escape", "text", "table", "numbers", "figure", "details", "when", "badge", "page", "note",
    "urlencode", "both_sizes", "svg", "left_out", "series_variable", "change_section", "timeline_section",
    "lag_section", "policies_section", "plans_section", "change_plot", "timeline_plot", "lag_plot",
    "bars_svg", "timeline_svg",
}  # fmt: skip
# Arguments that are HTML already, by position.
_HTML_ARGUMENTS: Final = {"page": 1, "details": 1, "figure": 0}
_MARKDOWN: Final = _NUMBERS | {"markdown_text", "printable"}


class Place(NamedTuple):
    """A place, and what is wrong there.

    rule: The kind of output.
    code: The expression that is not safe.
    """

    rule: str
    line: int
    code: str


@dataclass(slots=True)
class _Scope:
    """What is known of a module: its functions, and the values that each of them assigns."""

    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    around: list[ast.FunctionDef] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


def find_places(source: str, *, is_markdown: bool = False) -> list[Place]:
    """Find the places of a module."""
    tree = ast.parse(source)
    scope = _Scope()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            scope.functions.setdefault(node.name, node)
    for node in tree.body:
        for name, value in _assigned(node):
            scope.constants[name] = value
    return sorted(set(_visit(tree, scope, is_markdown=is_markdown)), key=lambda place: place.line)


def _visit(node: ast.AST, scope: _Scope, *, is_markdown: bool) -> Iterator[Place]:
    if isinstance(node, ast.FunctionDef):
        scope.around.append(node)
    yield from _check(node, scope, is_markdown=is_markdown)
    for child in ast.iter_child_nodes(node):
        yield from _visit(child, scope, is_markdown=is_markdown)
    if isinstance(node, ast.FunctionDef):
        scope.around.pop()


def _check(node: ast.AST, scope: _Scope, *, is_markdown: bool) -> Iterator[Place]:
    """Check one node, without what is within it."""
    match node:
        case ast.Call():
            yield from _check_call(node, scope)
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.Call() as value):
            if _dotted(value).endswith("logging.getLogger"):
                yield Place("logger", value.lineno, ast.unparse(value))
        case ast.Raise(exc=ast.Call() as made) if re.match(r"Airflow\w*Exception", _dotted(made.func)):
            yield from _unsafe("exception", made.args, _PLAIN, scope)
        case ast.JoinedStr(values=parts):
            fixed = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            if is_markdown:
                yield from _unsafe("markdown", [node], _MARKDOWN, scope)
            elif _ELEMENT.search(fixed):
                yield from _unsafe("html", [node], _HTML, scope)


def _check_call(call: ast.Call, scope: _Scope) -> Iterator[Place]:
    name = _dotted(call.func)
    last = name.rpartition(".")[2]
    owner = name.rpartition(".")[0]
    if name in _STREAMS or ".".join(name.split(".")[-2:]) in _WRITES:
        yield from _unsafe("stream", call.args, _PLAIN, scope)
    if owner == "logging" and (last in _LEVELS or last in _SET_UP):
        yield Place("logger", call.lineno, name)
    if owner.startswith("self.") and owner.endswith("log") and last in _LEVELS:
        yield from _unsafe("stream", call.args, _PLAIN, scope)
    if last in _MARKUP or name in _MARKUP:
        yield Place("terminal", call.lineno, name)
    if last in _CSV or name in _CSV:
        yield Place("csv", call.lineno, name)
    if last == "Html" and call.args and not isinstance(call.args[0], ast.JoinedStr):
        yield from _unsafe("html", call.args, _HTML, scope)
    place = _HTML_ARGUMENTS.get(name.removeprefix("markup."))
    if place is not None and len(call.args) > place:
        yield from _unsafe("html", [call.args[place]], _HTML, scope)


def _unsafe(rule: str, values: list[ast.expr], helpers: frozenset[str], scope: _Scope) -> Iterator[Place]:
    for value in values:
        for found in _unsafe_parts(value, helpers, scope):
            yield Place(rule, found.lineno, ast.unparse(found))


def _unsafe_parts(value: ast.expr, helpers: frozenset[str], scope: _Scope) -> Iterator[ast.expr]:
    """Yield the parts of an expression that are not safe; the expression itself if nothing is known of it."""
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name | ast.Dict):
        value = value.value
    if isinstance(value, ast.Name):
        yield from _unsafe_name(value, helpers, scope)
    elif isinstance(value, ast.Call):
        yield from _unsafe_call(value, helpers, scope)
    else:
        parts = _parts_of(value)
        if parts is None:
            yield value
        for part in parts or ():
            yield from _unsafe_parts(part, helpers, scope)


def _parts_of(value: ast.expr) -> list[ast.expr] | None:
    """Return the expressions whose texts an expression may consist of; None if that is not known."""
    match value:
        case ast.Constant() | ast.Compare() | ast.Lambda() | ast.Attribute(attr="__name__" | "strerror"):
            # A class or a system chose it, no client of a cluster.
            return []
        case ast.JoinedStr(values=parts):
            return [
                part.value for part in parts if isinstance(part, ast.FormattedValue) and not _is_number(part)
            ]
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            return [one, other]
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return parts
        case ast.Starred(value=one) | ast.GeneratorExp(elt=one) | ast.ListComp(elt=one):
            return [one]
        case _:
            return None


def _unsafe_call(call: ast.Call, helpers: frozenset[str], scope: _Scope) -> Iterator[ast.expr]:
    name = _dotted(call.func)
    last = name.rpartition(".")[2]
    if last in helpers or _is_html(scope.functions.get(last)):
        return
    if last == "join" or (last in {"removeprefix", "replace", "strip", "format"} and "." in name):
        if isinstance(call.func, ast.Attribute):
            yield from _unsafe_parts(call.func.value, helpers, scope)
        for argument in call.args:
            yield from _unsafe_parts(argument, helpers, scope)
        return
    if last == "map" and len(call.args) > 1 and _dotted(call.args[0]).rpartition(".")[2] in helpers:
        return
    function = scope.functions.get(last)
    if function is None:
        yield call
        return
    if last in scope.seen:
        return
    scope.seen.add(last)
    scope.around.append(function)
    try:
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                yield from _unsafe_parts(node.value, helpers, scope)
    finally:
        scope.around.pop()
        scope.seen.discard(last)


def _unsafe_name(name: ast.Name, helpers: frozenset[str], scope: _Scope) -> Iterator[ast.expr]:
    key = f"name {name.id}"
    if key in scope.seen:
        return
    values = [
        value
        for function in reversed(scope.around)
        for node in ast.walk(function)
        for assigned, value in _assigned(node)
        if assigned == name.id
    ] or [value for assigned, value in scope.constants.items() if assigned == name.id]
    # An argument is checked where it is passed, if it is declared to be HTML.
    is_declared = any(_declares_html(function, name.id) for function in scope.around)
    if not (values or is_declared or name.id.isupper()):
        yield name
    scope.seen.add(key)
    for value in values:
        yield from _unsafe_parts(value, helpers, scope)
    scope.seen.discard(key)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement assigns, or a loop binds to the elements of a literal, with the values."""
    match node:
        case (
            ast.Assign(targets=[target], value=value)
            | ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.AugAssign(target=target, value=value)
            | ast.NamedExpr(target=target, value=value)
            | ast.For(target=target, iter=value)
            | ast.comprehension(target=target, iter=value)
            | ast.Call(func=ast.Attribute(value=ast.Name() as target, attr="append" | "extend"), args=[value])
        ):
            yield from _pairs(target, value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    values = value.elts if isinstance(value, ast.Tuple) and targets != [target] else [value] * len(targets)
    for each, one in zip(targets, values, strict=False):
        if isinstance(each, ast.Name):
            yield each.id, one


def _is_html(function: ast.FunctionDef | None) -> bool:
    # Its own f-strings are checked where they are.
    return function is not None and function.returns is not None and ast.unparse(function.returns) == "Html"


def _declares_html(function: ast.FunctionDef, name: str) -> bool:
    arguments = (*function.args.args, *function.args.kwonlyargs, *function.args.posonlyargs)
    return any(
        each.arg == name and each.annotation is not None and ast.unparse(each.annotation) in {"Html", "int"}
        for each in arguments
    )


def _is_number(part: ast.FormattedValue) -> bool:
    """Whether the format accepts numbers or times only; with any other value it raises."""
    if not isinstance(part.format_spec, ast.JoinedStr):
        return False
    spec = "".join(str(each.value) for each in part.format_spec.values if isinstance(each, ast.Constant))
    return _NUMERIC.fullmatch(spec) is not None or "%Y" in spec or "%d" in spec


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""
