"""JSON schema of the policy file, for editors, generated from the settings."""

from __future__ import annotations

import json
from typing import Any

from evenlag.policy.settings import Policy


def render_schema() -> str:
    """Render the schema.

    Returns JSON with sorted keys, and a newline at its end.
    """
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Policy.model_json_schema(),
        "title": "evenlag policy",
    }
    # Not required in the file: EVENLAG_LAKE may set it.
    schema["required"] = [name for name in schema["required"] if name != "lake"]
    _take_lists_as_text(schema["$defs"])
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _take_lists_as_text(definitions: dict[str, Any]) -> None:
    """Allow lists of clusters, brokers and approvers as one comma-separated text, too."""
    for model, name in (
        ("ClusterSettings", "bootstrap_servers"),
        ("ClusterSettings", "approvers"),
        ("GroupRule", "clusters"),
        ("GroupRule", "approvers"),
    ):
        field = definitions[model]["properties"][name]
        choices = field.pop("anyOf", None)
        if choices is None:
            array = {key: field.pop(key) for key in ("items", "minItems", "type") if key in field}
            choices = [array]
        field["anyOf"] = [*choices, {"type": "string", "minLength": 1}]
