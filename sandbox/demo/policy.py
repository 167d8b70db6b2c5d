"""The demo's policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox.kafka.broker import Broker

POLICY: Final = """\
# Written by the demo; the same file tells Airflow which DAG to make and the jobs what to do.
lake: {lake}
audit_schedule: null          # by hand; hourly without this line
maintenance: {{schedule: null}}  # by hand; daily without this line
clusters:
  {cluster}:
    bootstrap_servers: {bootstrap_servers}
    schedule: null            # by hand; in production a cron expression
groups:
  - match: {group}
    mode: auto                # publish what passes the gates; the default is shadow: plan and score only
    reset_policy: earliest
"""


def write_policy(folder: Path, broker: Broker, cluster: str, group_id: str) -> Path:
    """Return the file of a new policy in the demo's folder, for Airflow and the jobs with this broker."""
    path = folder / "evenlag.yaml"
    path.write_text(
        POLICY.format(
            lake=folder / "lake", cluster=cluster, bootstrap_servers=broker.bootstrap_servers, group=group_id
        ),
        encoding="utf-8",
    )
    return path
