"""The page of the policy's settings, from the models that validate them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from evenlag.policy.settings import Policy
from release.reference.form import page, table

_INTRODUCTION: Final = """\
Every key of the policy file. [The policy file](policy-file.md) explains how to write it; `evenlag policy
check` validates a file, and `evenlag policy schema` prints its JSON schema for editors. Schedules are in UTC.
Lists of clusters, brokers and approvers may be one text with commas."""
_HEADER: Final = ("key", "default", "value", "meaning")
_REFERENCE: Final = "SecretRef"
_TYPES: Final = {
    "object": "mapping",
    "integer": "integer",
    "number": "number",
    "boolean": "`true` or `false`",
}
_BOUNDS: Final = (
    ("exclusiveMinimum", "above {}"),
    ("minimum", "from {}"),
    ("exclusiveMaximum", "below {}"),
    ("maximum", "to {}"),
)


def render_policy() -> str:
    """Render the page."""
    schema = Policy.model_json_schema()
    parts = [_INTRODUCTION]
    for path, model in _sections(schema, schema["$defs"], ""):
        parts += [f"## {f'`{path}`' if path else 'The file'}", _prose(model.get("description", ""))]
        parts.append(table(_HEADER, _rows(model, schema["$defs"])))
    return page("Policy settings", "the models of `evenlag/policy`", [part for part in parts if part])


def _prose(text: str) -> str:
    """The first paragraph of a docstring as Markdown, with links to the pages that it names."""
    first = text.partition("\n\n")[0].replace("``", "`")
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", first)


def _sections(
    model: Mapping[str, Any], models: Mapping[str, Any], path: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each section of the file with its path, in the order of the models."""
    yield path, model
    for name, field in model["properties"].items():
        below = f"{path}.{name}" if path else name
        for suffix, choice in _objects(field):
            found = models[choice]
            if found.get("type") == "object" and choice != _REFERENCE:
                yield from _sections(found, models, below + suffix)


def _objects(field: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the models that a setting takes, with what its path has for one of several."""
    for choice in (field, *field.get("anyOf", ())):
        if "$ref" in choice:
            yield "", _name(choice)
        if "$ref" in choice.get("items", {}):
            yield "[]", _name(choice["items"])
        values = choice.get("additionalProperties")
        patterns = choice.get("patternProperties", {})
        for value in (values, *patterns.values()):
            if isinstance(value, dict) and "$ref" in value:
                yield ".<name>", _name(value)


def _rows(model: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[list[str]]:
    required = set(model.get("required", ()))
    for name, field in model["properties"].items():
        yield [
            f"`{name}`",
            "must be given" if name in required else _default(field),
            _value(field, models),
            field.get("description", ""),
        ]


def _value(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """The type with its range, or the values to choose from."""
    kind, allowed = _type(field, models), _range(field, models)
    if not allowed:
        return kind
    return f"{kind} {allowed}" if kind in {"integer", "number"} else allowed


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "as below" if "$ref" in field else _entries(value)
    if isinstance(value, list):
        return ", ".join(f"`{one}`" for one in value) or "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _entries(values: Mapping[str, Any]) -> str:
    """The keys of a mapping by their value."""
    names: dict[Any, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(f"`{name}`")
    texts = (f"{'none' if value is None else value}: {', '.join(of)}" for value, of in names.items())
    return "; ".join(texts) or "none"


def _type(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    choices = [choice for choice in field.get("anyOf", [field]) if choice.get("type") != "null"]
    return " or ".join(dict.fromkeys(_one_type(choice, models) for choice in choices))


def _one_type(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = _name(field)
        if name == _REFERENCE:
            return "`{env: NAME}` or `{file: PATH}`"
        return "section" if models[name].get("type") == "object" else "text"
    if field.get("type") == "array":
        inner = _type(field["items"], models)
        return f"list of {inner}s" if inner.isalpha() else f"list of: {inner}"
    return _TYPES.get(field.get("type", ""), "text")


def _range(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    parts = []
    for choice in field.get("anyOf", [field]):
        if "$ref" in choice and "enum" in models[_name(choice)]:
            parts.append(", ".join(f"`{value}`" for value in models[_name(choice)]["enum"]))
        elif bounds := [text.format(_number(choice[key])) for key, text in _BOUNDS if key in choice]:
            parts.append(" ".join(bounds))
    return ", ".join(parts)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _name(reference: Mapping[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]
