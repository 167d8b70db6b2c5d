"""The JSON schema of the policy file, for editors, rendered from the settings."""

from __future__ import annotations

import json
from typing import Any

from evenlag.policy.settings import Policy


def render_schema() -> str:
    """Render the schema.

    Returns
    -------
    str
        JSON with sorted keys, and a newline at its end.
    """
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Policy.model_json_schema(),
        "title": "evenlag policy",
    }
    # EVENLAG_LAKE may stand for it.
    schema["required"] = [name for name in schema["required"] if name != "lake"]
    _take_lists_as_text(schema["$defs"])
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _take_lists_as_text(definitions: dict[str, Any]) -> None:
    """Names of clusters and brokers may be given as one text with commas too."""
    for model, name in (("ClusterSettings", "bootstrap_servers"), ("GroupRule", "clusters")):
        field = definitions[model]["properties"][name]
        choices = field.pop("anyOf", None)
        if choices is None:
            array = {key: field.pop(key) for key in ("items", "minItems", "type") if key in field}
            choices = [array]
        field["anyOf"] = [*choices, {"type": "string", "minLength": 1}]
