"""Converts pydantic's validation errors to messages for users: one line per error, with place and remedy.

A value that could be a secret is never shown: only its kind is.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml
from pydantic import BaseModel, ValidationError

from evenlag.policy.setting_types import KAFKA_SETTING_KINDS
from evenlag.policy.settings import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from evenlag.policy.environment import Override

_SHOWN: Final = 60
# Parts that pydantic adds to a location: the branch of a union, a key itself.
_OWN_PARTS: Final = frozenset({"[key]", *KAFKA_SETTING_KINDS})
_NUM_NAMED: Final = 12
_KINDS: Final = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (dict, "a mapping"),
    (list, "a list"),
    (type(None), "nothing"),
)
_WANTED: Final = {
    "string_type": "must be text: put it in quotes",
    "model_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of names",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false; yes, no, on and off are text in YAML 1.2",
}


def explain(error: ValidationError, name: str, tree: yaml.Node | None, overrides: Sequence[Override]) -> str:
    """Describe all errors, one line each, in the order of the file."""
    # Branches of a union may report the same error: equal lines are reported once.
    messages = dict.fromkeys(
        _explain(name, tree, item, overrides)
        for item in sorted(error.errors(include_url=False), key=lambda item: locate(tree, item["loc"])[1])
    )
    return "\n".join(messages)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return the end of a message: the nearest known name, or all names if none is near and they are few.

    Begins with a semicolon; empty if there is nothing to suggest.
    """
    names = sorted(known)
    near = difflib.get_close_matches(wrong, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; it has: {', '.join(names)}" if len(names) <= _NUM_NAMED else ""


def locate(tree: yaml.Node | None, location: Sequence[str | int]) -> tuple[str, int]:
    """Follow a location as far as the YAML tree contains it; pydantic adds parts of its own to unions.

    Returns the path, joined by dots, and its line.
    """
    node, path = tree, []
    line = tree.start_mark.line + 1 if tree is not None else 1
    for part in location:
        child = child_of(node, part)
        if child is None:
            if isinstance(node, yaml.MappingNode) and part == location[-1] and part not in _OWN_PARTS:
                path.append(_shown(part))
            break
        node, line = child
        path.append(_shown(part))
    return ".".join(path), line


def child_of(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    """Return the node under a key or index, with its line; None if there is none."""
    if isinstance(node, yaml.MappingNode):
        # If a merged mapping has the same key, the mapping's own key comes last and applies.
        for key, value in reversed(node.value):
            if key.value == str(part):
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item, item.start_mark.line + 1
    return None


def _explain(name: str, tree: yaml.Node | None, item: Any, overrides: Sequence[Override]) -> str:
    location: Sequence[str | int] = item["loc"]
    message = _message(item)
    for override in overrides:
        if tuple(location[: len(override.path)]) == override.path:
            return f"the variable {override.variable}: {message}"
    path, line = locate(tree, location)
    where = f"{name}, line {line}: {path}" if path else f"{name}, line {line}"
    return f"{where}: {message}"


def _message(item: Any) -> str:
    kind, location = item["type"], item["loc"]
    if kind == "extra_forbidden":
        unknown = str(location[-1])
        known = _model_at(location[:-1]).model_fields
        return f"there is no such key{did_you_mean(unknown, known)}"
    if kind == "missing":
        return "Field required: add it"
    if kind == "invalid_key" or (location and location[-1] == "[key]" and kind == "string_type"):
        return "a key must be text: put it in quotes"
    message = _WANTED.get(kind)
    if message is not None:
        return f"{message}, not {_kind(item['input'])}"
    return " ".join(str(item["msg"]).removeprefix("Value error, ").split())


def _kind(value: Any) -> str:
    return next((noun for kind, noun in _KINDS if isinstance(value, kind)), f"a {type(value).__name__}")


def _model_at(location: Sequence[str | int]) -> type[BaseModel]:
    """Return the settings model at a location; parts that are not fields are names or numbers."""
    model: type[BaseModel] = Policy
    for part in location:
        field = model.model_fields.get(str(part))
        if field is not None:
            model = next(_models_in(field.annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _shown(part: str | int) -> str:
    text = str(part)
    if text.isprintable() and len(text) <= _SHOWN:
        return text
    return repr(text[:_SHOWN])
