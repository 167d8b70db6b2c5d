"""Software bills of materials, in CycloneDX 1.6 (JSON).

The same components give the same bytes: the serial number is derived from the content, and the time is that
of the source. https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from release.components import Component

SPEC_VERSION: Final = "1.6"
_NAMESPACE: Final = uuid.UUID("0d6a3c5e-6a0c-4f6e-9c2e-5b7c6c3d1e77")


def make_sbom(subject: Component, components: Iterable[Component], *, epoch: int) -> str:
    """Return the bill of materials of one thing that is released.

    Returns JSON, sorted by package URL.
    epoch: Time of the source, in seconds since 1970.
    """
    listed = {one.purl: one for one in sorted(components, key=lambda one: one.purl)}
    needed = {purl for one in listed.values() for purl in one.requires}
    direct = [purl for purl in listed if purl not in needed]
    tree: dict[str, Any] = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _component(subject),
        },
        "components": [_component(one) for one in listed.values()],
        "dependencies": [
            {"ref": subject.purl, "dependsOn": direct},
            *(
                {"ref": purl, "dependsOn": sorted(one.requires)}
                for purl, one in listed.items()
                if one.requires
            ),
        ],
    }
    number = uuid.uuid5(_NAMESPACE, json.dumps(tree, sort_keys=True))
    return json.dumps({**tree, "serialNumber": f"urn:uuid:{number}"}, indent=1, sort_keys=True) + "\n"


def _component(one: Component, *, within: str = "") -> dict[str, Any]:
    # A jar may be in several packages: the reference is of this place.
    reference = f"{within}{one.purl}"
    found: dict[str, Any] = {
        "type": one.kind,
        "bom-ref": reference,
        "name": one.name,
        "purl": one.purl,
    }
    if one.version is not None:
        found["version"] = one.version
    if len(one.sha256) == 1:
        found["hashes"] = _hashes(one.sha256[0])
    if one.licence is not None:
        found["licenses"] = [{"expression": one.licence}]
    # `hashes` are of one file. A package has one for each platform, and any of them may be installed.
    files = " ".join(one.sha256) if len(one.sha256) > 1 else None
    values = {"evenlag:condition": one.condition, "evenlag:note": one.note, "evenlag:sha256": files}
    if properties := [{"name": name, "value": value} for name, value in values.items() if value]:
        found["properties"] = properties
    if one.parts:
        found["components"] = [
            _component(part, within=f"{reference}#{number}-") for number, part in enumerate(one.parts)
        ]
    return found


def _hashes(digest: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest}]
