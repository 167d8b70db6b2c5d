"""Defaults of commands: the policy, the lake and the cluster that apply when none is named."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import NotFoundError, UsageError
from evenlag.formatting import did_you_mean
from evenlag.lake.tables import SNAPSHOTS

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader
    from evenlag.policy.loader import LoadedPolicy

DEFAULT_LAKE: Final = Path("evenlag-lake")


def acting_person(actor: str | None) -> str:
    """Return the name given on the command line; without one, the user name of this process."""
    import getpass

    if actor is not None and actor.strip():
        return actor.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("this user has no name: name yourself with --actor NAME") from None


def find_policy(config: str | os.PathLike[str] | None) -> LoadedPolicy | None:
    """Load the policy that applies: of the file, else of ``EVENLAG_CONFIG``, else ``evenlag.yaml``.

    None if no file is named and the default does not exist.
    """
    from evenlag.policy.loader import DEFAULT_POLICY_PATH, POLICY_VARIABLE, load_policy

    if config is None and not os.environ.get(POLICY_VARIABLE) and not DEFAULT_POLICY_PATH.exists():
        return None
    return load_policy(config)


def lake_root(lake: str | None, config: str | os.PathLike[str] | None, cluster: str | None = None) -> str:
    """Return the given root of a lake, else the policy's; without a policy ``EVENLAG_LAKE``, or the default.

    cluster: A cluster that the policy must contain, if a policy is read.
    """
    from evenlag.policy.loader import LAKE_VARIABLE

    if lake is not None:
        return lake
    loaded = find_policy(config)
    if loaded is None:
        return os.environ.get(LAKE_VARIABLE) or str(DEFAULT_LAKE)
    if cluster is not None:
        loaded.cluster_settings(cluster)
    return loaded.policy.lake


def find_lake(lake: str | None, config: str | os.PathLike[str] | None) -> LakeReader:
    """Open a reader of the lake that applies."""
    from evenlag.lake.reader import LakeReader

    root = lake_root(lake, config)
    reader = LakeReader(root)
    if reader.paths.is_local and reader.paths.local_root.is_file():
        raise UsageError(f"the lake {root} is a file: name the folder of the tables")
    if not reader.exists(SNAPSHOTS):
        raise NotFoundError(
            f"the lake {root} has no snapshot yet: name another one with --lake or --config, run a cycle "
            "(evenlag run), or read a cluster without a lake: evenlag lag --bootstrap-servers HOST:PORT"
        )
    return reader


def find_cluster(reader: LakeReader, cluster: str | None) -> str:
    """Find the cluster of a lake that a command is about."""
    names = reader.clusters(SNAPSHOTS)
    if cluster is None:
        return only_cluster(names)
    if cluster not in names:
        raise NotFoundError(f"the lake has no cluster {cluster!r}{did_you_mean(cluster, names)}")
    return cluster


def require_policy(config: str | os.PathLike[str] | None) -> LoadedPolicy:
    """Load the policy that applies; there must be one."""
    loaded = find_policy(config)
    if loaded is None:
        raise UsageError("there is no policy file: name one with --config or EVENLAG_CONFIG")
    return loaded


def policy_cluster(loaded: LoadedPolicy, cluster: str | None) -> str:
    """Find the cluster of a policy that a command is about."""
    if cluster is None:
        return only_cluster(loaded.policy.clusters)
    loaded.cluster_settings(cluster)
    return cluster


def newest_snapshot(reader: LakeReader, cluster: str) -> dict[str, Any]:
    """Return the marker of a cluster's newest snapshot; there must be one."""
    found = reader.latest_snapshot(cluster)
    if found is None:
        raise NotFoundError(f"there is no snapshot of {cluster} yet: run a cycle first (evenlag run)")
    return found


def only_cluster(names: Iterable[str]) -> str:
    """Return the name of the only cluster."""
    found = sorted(names)
    if not found:
        raise NotFoundError("there is no cluster yet: run a cycle first (evenlag run)")
    if len(found) != 1:
        raise UsageError(f"there are {len(found)} clusters, name one with --cluster: {', '.join(found)}")
    return found[0]
