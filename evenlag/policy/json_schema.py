"""The JSON schema of the policy file, shipped beside this module for editors: ``policy.schema.json``.

``python -m evenlag.policy.json_schema > evenlag/policy/policy.schema.json`` regenerates it; a test compares
it with the settings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from evenlag.policy.settings import Policy

SCHEMA_PATH: Final = Path(__file__).with_name("policy.schema.json")


def render_schema() -> str:
    """The schema as text."""
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


if __name__ == "__main__":
    sys.stdout.write(render_schema())
