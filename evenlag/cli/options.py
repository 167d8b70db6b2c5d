"""Options that commands share, and what they stand for: a policy, a lake, a cluster."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from evenlag.cli import option_types
from evenlag.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlag.lake.reader import LakeReader
    from evenlag.policy.loader import LoadedPolicy

DEFAULT_LAKE: Final = Path("evenlag-lake")


def _reason(value: str) -> str:
    if not value.strip():
        raise typer.BadParameter("say why: others will read it")
    return value


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        parser=option_types.path,
        metavar="PATH",
        help="The policy file; else $EVENLAG_CONFIG, else ./evenlag.yaml.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        parser=option_types.name,
        metavar="TEXT",
        help="The cluster's name; not needed when there is one only.",
    ),
]
LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        parser=option_types.lake_root,
        metavar="TEXT",
        help="Root of the tables; else the policy's, else $EVENLAG_LAKE, else ./evenlag-lake.",
    ),
]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit",
        parser=option_types.whole(1, option_types.MAX_ROWS),
        metavar="INTEGER",
        help="How many rows to show.",
    ),
]
AnyGroupArgument = Annotated[
    str | None,
    typer.Argument(
        parser=option_types.name, metavar="GROUP", help="One group only; else all.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, for scripts.")]

ReasonOption = Annotated[
    str,
    typer.Option(
        "--reason",
        parser=option_types.name,
        metavar="TEXT",
        help="Why; it is recorded.",
        callback=_reason,
        show_default=False,
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor",
        parser=option_types.name,
        metavar="TEXT",
        help="Who decides; else the user of this machine. It is recorded.",
    ),
]


class UsageError(JobError):
    """Raised when options do not go together or name what is not there."""

    exit_code = 2


class NothingThereError(JobError):
    """Raised when what was asked for has not been seen."""

    exit_code = 4


def acting_person(actor: str | None) -> str:
    """Tell who decides: the one named, else the user of this machine.

    Raises
    ------
    UsageError
        When nobody is named and the user has no name.
    """
    import getpass

    if actor is not None and actor.strip():
        return actor.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("this user has no name: say who decides with --actor NAME") from None


def find_policy(config: Path | None) -> LoadedPolicy | None:
    """Load the policy that holds; None when no file was named and there is none by default.

    Raises
    ------
    PolicyError
        When the file that was named is missing or not valid.
    """
    from evenlag.policy.loader import DEFAULT_POLICY_PATH, POLICY_VARIABLE, load_policy

    if config is None and not os.environ.get(POLICY_VARIABLE) and not DEFAULT_POLICY_PATH.exists():
        return None
    return load_policy(config)


def find_lake(lake: str | None, config: Path | None) -> LakeReader:
    """Open the lake to read.

    Raises
    ------
    NothingThereError
        When there is no lake yet.
    """
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import SNAPSHOTS
    from evenlag.policy.environment import LAKE_VARIABLE

    root = lake
    if root is None:
        loaded = find_policy(config)
        root = loaded.policy.lake if loaded else os.environ.get(LAKE_VARIABLE) or str(DEFAULT_LAKE)
    reader = LakeReader(root)
    if reader.paths.is_local and reader.paths.local_root.is_file():
        raise UsageError(f"the lake {root} is a file: name the folder of the tables")
    if not reader.exists(SNAPSHOTS):
        raise NothingThereError(
            f"the lake {root} holds no snapshot yet: run a cycle first (evenlag run --bootstrap-servers "
            "HOST:PORT), or name another lake with --lake or --config"
        )
    return reader


def find_cluster(reader: LakeReader, cluster: str | None) -> str:
    """Tell which cluster of a lake is meant.

    Raises
    ------
    UsageError
        When there are several and none was named.
    NothingThereError
        When the lake knows no such cluster.
    """
    from evenlag.lake.tables import SNAPSHOTS

    names = sorted(set(reader.read(SNAPSHOTS, columns=["cluster"])["cluster"].to_pylist()))
    if cluster is None:
        return only_cluster(names)
    if cluster not in names:
        raise NothingThereError(f"the lake has no cluster {cluster!r}{did_you_mean(cluster, names)}")
    return cluster


def only_cluster(names: Iterable[str]) -> str:
    """Return the only name there is.

    Raises
    ------
    UsageError
        When there are several.
    NothingThereError
        When there is none.
    """
    found = sorted(names)
    if not found:
        raise NothingThereError("there is no cluster yet: run a cycle first (evenlag run)")
    if len(found) != 1:
        raise UsageError(f"there are {len(found)} clusters, name one with --cluster: {', '.join(found)}")
    return found[0]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggest the nearest name, as the end of a message."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
