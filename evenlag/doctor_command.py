"""`evenlag doctor`: is all well? For probes outside Airflow: needs neither a JVM nor Airflow."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from evenlag.options import (
    ClusterOption,
    ConfigOption,
    JsonOption,
    LakeOption,
    UsageError,
    did_you_mean,
    find_lake,
    find_policy,
)
from evenlag.output import console, duration, moment, print_json, table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spark_jobs.freshness import Freshness
    from spark_jobs.lake_reader import LakeReader

NOT_WELL = 1


def doctor(
    *,
    fresh: Annotated[  # noqa: ARG001  # the only check there is yet; named, so that a probe stays what it is
        bool, typer.Option("--fresh", help="Check that every cluster has a fresh snapshot.")
    ] = False,
    max_age_s: Annotated[
        int | None,
        typer.Option("--max-age", min=1, help="How old a snapshot may be, in s; else the schedule decides."),
    ] = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that all is well; ends with 0 when it is and with 1 when it is not.

    By a cluster's schedule, the newest run may still be going on, and the one before it must have left its
    snapshot. A cluster without a schedule needs any snapshot at all, or one within --max-age.
    """
    reader, schedules = _lake_and_schedules(lake, config, cluster, max_age_s)
    found = _freshness(reader, schedules, max_age_s)
    is_well = all(one.is_fresh for one in found)
    if as_json:
        print_json({"well": is_well, "freshness": [asdict(one) for one in found]})
    else:
        _show(found)
    if not is_well:
        raise typer.Exit(NOT_WELL)


def _lake_and_schedules(
    lake: str | None, config: Path | None, cluster: str | None, max_age_s: int | None
) -> tuple[LakeReader, dict[str, str | None]]:
    """The clusters to look at: the policy's, whether or not anything is in its lake; else the lake's."""
    from spark_jobs.lake_reader import LakeReader
    from spark_jobs.tables import SNAPSHOTS

    loaded = find_policy(config)
    schedules: dict[str, str | None]
    if loaded is not None:
        reader = LakeReader(lake or loaded.policy.lake)
        schedules = {name: settings.schedule for name, settings in loaded.policy.clusters.items()}
    elif max_age_s is None:
        raise UsageError(
            "without a policy file no schedule is known: say with --max-age how old a snapshot may be"
        )
    else:
        reader = find_lake(lake, config)
        names = reader.read(SNAPSHOTS, columns=["cluster"])["cluster"].to_pylist()
        schedules = dict.fromkeys(sorted(set(names)))
    if cluster is None:
        return reader, schedules
    if cluster not in schedules:
        raise UsageError(f"there is no cluster {cluster!r}{did_you_mean(cluster, schedules)}")
    return reader, {cluster: schedules[cluster]}


def _freshness(
    reader: LakeReader, schedules: Mapping[str, str | None], max_age_s: int | None
) -> list[Freshness]:
    from spark_jobs.freshness import read_freshness

    try:
        return read_freshness(reader, schedules, datetime.now(UTC), max_age_s=max_age_s)
    except ValueError as error:
        raise UsageError(f"{error}. Say with --max-age how old a snapshot may be") from error


def _show(found: list[Freshness]) -> None:
    shown = table("Freshness", ("cluster", "well", "newest slot", "age", "why"), right=("age",))
    for one in found:
        well = Text("yes", style="green") if one.is_fresh else Text("NO", style="red")
        age: Any = None if one.age_s is None else 1000 * one.age_s
        shown.add_row(one.cluster, well, moment(one.slot), duration(age), one.reason)
    console().print(shown)
