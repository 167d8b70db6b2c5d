"""Strict YAML reader for the policy file: each error is one line with its place, and nothing is guessed.

YAML allows duplicate keys and uses the last value; a policy with two modes for a group is rejected here.
Files that expand too far (aliases of aliases) or nest too deeply are rejected before they are built.
"""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from evenlag.errors import PolicyError

MAX_BYTES: Final = 4 * 1024 * 1024
# A policy nests six levels deep. Without a limit the parser ends in a RecursionError.
_MAX_DEPTH: Final = 64
# Aliases count as often as they are used. 100,000 rules with all their settings are below the limit.
_MAX_NODES: Final = 2_000_000
_SHOWN: Final = 60


def read_text(path: Path) -> str:
    """Read a policy file's text."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PolicyError(
            f"the policy file {path} cannot be read: {reason}. Give one with --config or EVENLAG_CONFIG."
        ) from error
    if len(data) > MAX_BYTES:
        raise PolicyError(
            f"the policy file {path} has more than {MAX_BYTES:,} bytes: is this the right file?"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
        raise PolicyError(
            f"{path}, line {line}, column {column}: byte 0x{data[error.start]:02x} is not UTF-8: save "
            "the file as UTF-8"
        ) from error


def read_mapping(text: str, name: str) -> tuple[dict[Any, Any], yaml.Node]:
    """Read a text that contains one mapping."""
    loader: Any = None
    try:
        loader = _Loader(text)
        tree = loader.get_single_node()
        _check_root(tree, name)
        mistakes = _Survey(name).mistakes_of(tree)
        if mistakes:
            raise PolicyError("\n".join(mistakes))
        content = loader.construct_document(tree)
    except yaml.YAMLError as error:
        raise PolicyError(_error_message(error, text, name)) from error
    except RecursionError:
        raise PolicyError(f"{name} is not YAML that can be read: it nests too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    return content, tree


def read_value(text: str) -> Any:
    """Read one YAML value, e.g. of an environment variable."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("it cannot be read as YAML: put it in quotes") from error


def dump_yaml(value: Any, *, in_one_line: bool = False) -> str:
    """Write a value so that this module reads it again."""
    width = float("inf") if in_one_line else 80
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=in_one_line, width=width)
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes text that the core schema would read as another type."""


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.2's core schema, limits the nesting depth, and names the place of an invalid value.

    PyYAML's own schema is that of YAML 1.1: ``no`` is false, ``010`` is 8, ``1:30`` is 90.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs lack it
            raise yaml.composer.ComposerError(None, None, f"nests deeper than {_MAX_DEPTH} levels", mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, OverflowError, KeyError, IndexError) as error:
            # A tag may ask for a type, and a number may have too many digits for Python.
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"{_shown(node.value)} is no {kind}: put it in quotes if it is text",
                node.start_mark,
            ) from error


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    base = {"0o": 8, "0x": 16}.get(text[:2])
    return int(text, 10) if base is None else int(text[2:], base)


def _number(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


# Chapter 10.3.2 of YAML 1.2: tag, pattern, the first characters; "" is an empty value. The merge key is no
# part of it: it belongs to aliases, which policies use.
_CORE_SCHEMA: Final = (
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
for _schema in (_Loader, _Dumper):
    _schema.yaml_implicit_resolvers = {}
    for _kind, _pattern, _first in _CORE_SCHEMA:
        _schema.add_implicit_resolver(
            f"tag:yaml.org,2002:{_kind}",
            re.compile(f"(?:{_pattern})\\Z"),
            [*_first, *([""] if _kind == "null" else [])],
        )
_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def _check_root(tree: yaml.Node | None, name: str) -> None:
    if isinstance(tree, yaml.MappingNode):
        return
    wanted = "it needs at least 'lake' and 'clusters'"
    if tree is None:
        raise PolicyError(f"{name} is empty: {wanted}")
    kind = "begins with a list" if isinstance(tree, yaml.SequenceNode) else "is one value"
    line = tree.start_mark.line + 1
    raise PolicyError(f"{name}, line {line}: holds no mapping, it {kind}: {wanted}")


class _Survey:
    """Visits a tree once: finds duplicate keys and recursive aliases, and computes its expanded size."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()
        self._mistakes: list[str] = []

    def mistakes_of(self, tree: yaml.Node) -> list[str]:
        self._size(tree, ())
        return self._mistakes

    def _size(self, node: yaml.Node, path: tuple[str, ...]) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        known = self._sizes.get(id(node))
        if known is not None:
            return known
        where = f"{self._name}, line {node.start_mark.line + 1}: {'.'.join(path) or 'the policy'}"
        if id(node) in self._open:
            raise PolicyError(f"{where} contains itself by an alias: write it out")
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._find_doubled(node, path)
            parts = [(part, (*path, _shown_key(key))) for key, value in node.value for part in (key, value)]
        else:
            parts = [(part, (*path, str(index))) for index, part in enumerate(node.value)]
        size = 1 + sum(self._size(part, below) for part, below in parts)
        if size > _MAX_NODES:
            raise PolicyError(
                f"{where} expands to more than {_MAX_NODES:,} values by its aliases: write less"
            )
        self._open.discard(id(node))
        self._sizes[id(node)] = size
        return size

    def _find_doubled(self, node: yaml.MappingNode, path: tuple[str, ...]) -> None:
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in first:
                place = ".".join((*path, _shown_key(key)))
                self._mistakes.append(
                    f"{self._name}, line {line}: {place}: the key {_shown(key.value)} stands twice, in lines "
                    f"{first[key.value]} and {line}: keep one"
                )
            first.setdefault(key.value, line)


def _error_message(error: yaml.YAMLError, text: str, name: str) -> str:
    """One line: the place and the error."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        code = error.character if isinstance(error.character, int) else ord(str(error.character))
        return f"{name}, line {line}, column {column}: is not YAML: the character U+{code:04X} is not allowed"
    problem = getattr(error, "problem", None) or str(error)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if "could not determine a constructor" in problem:
        tag = problem.rpartition("tag ")[2].strip("'").replace("tag:yaml.org,2002:", "!!")
        problem = f"the tag {_shown(tag)} is not known here: write plain values"
    elif "expected a single document" in (getattr(error, "context", None) or ""):
        problem = "a second document begins here: keep one"
    elif "alias" in f"{problem} {getattr(error, 'context', '')}":
        problem += ": * begins an alias, put a pattern in quotes"
    place = f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name
    return f"{place}: is not YAML: {' '.join(problem.split())}"


def _shown(value: object) -> str:
    text = repr(str(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _shown_key(key: yaml.Node) -> str:
    if not isinstance(key, yaml.ScalarNode):
        return "?"
    text: str = key.value
    return text if text.isprintable() and len(text) <= _SHOWN else _shown(text)
