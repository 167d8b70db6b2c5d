"""One broker as many clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def write_policy(
    path: Path, lake: str, servers: str, clusters: Iterable[str], rules: Sequence[dict[str, Any]]
) -> None:
    """Write a policy that has the broker as several clusters, each with a hint topic of its own."""
    policy = {
        "lake": lake,
        "audit_schedule": None,
        "clusters": {
            cluster: {
                "bootstrap_servers": servers, "hint_topic": f"hints-{cluster}", "schedule": None,
                "temporary_member_after_s": None,
            }
            for cluster in clusters
        },
        "groups": list(rules),
    }  # fmt: skip
    path.write_text(yaml.safe_dump(policy), encoding="utf-8")
