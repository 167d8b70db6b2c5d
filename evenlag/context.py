"""What a question is about: the policy, the lake and the cluster that apply where nothing else is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.errors import NothingThereError, UsageError
from evenlag.formatting import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlag.lake.reader import LakeReader
    from evenlag.policy.loader import LoadedPolicy

DEFAULT_LAKE: Final = Path("evenlag-lake")


def acting_person(actor: str | None) -> str:
    """Name the person who decides.

    Parameters
    ----------
    actor
        The name that was given, if any.

    Returns
    -------
    str
        That name, else the user of this machine.

    Raises
    ------
    UsageError
        When no name is given and the user has none.
    """
    import getpass

    if actor is not None and actor.strip():
        return actor.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("this user has no name: name who decides with --actor NAME") from None


def find_policy(config: str | os.PathLike[str] | None) -> LoadedPolicy | None:
    """Load the policy that applies.

    Parameters
    ----------
    config
        The file; else ``EVENLAG_CONFIG``, else ``evenlag.yaml`` in the current folder.

    Returns
    -------
    LoadedPolicy or None
        None when no file was named and the default does not exist.

    Raises
    ------
    PolicyError
        When the file that was named does not exist or is not valid.
    """
    from evenlag.policy.loader import DEFAULT_POLICY_PATH, POLICY_VARIABLE, load_policy

    if config is None and not os.environ.get(POLICY_VARIABLE) and not DEFAULT_POLICY_PATH.exists():
        return None
    return load_policy(config)


def lake_root(lake: str | None, config: str | os.PathLike[str] | None, cluster: str | None = None) -> str:
    """Find the root of the lake that applies.

    Parameters
    ----------
    lake
        The root that was given, if any.
    config
        The policy file, as for :func:`find_policy`; read only when no root was given.
    cluster
        A cluster that the policy must have, where a policy is read.

    Returns
    -------
    str
        The root given, else the policy's, else ``EVENLAG_LAKE``, else ``evenlag-lake`` in the current folder.

    Raises
    ------
    PolicyError
        When the policy is not valid or does not have the cluster.
    """
    from evenlag.policy.environment import LAKE_VARIABLE

    if lake is not None:
        return lake
    loaded = find_policy(config)
    if loaded is None:
        return os.environ.get(LAKE_VARIABLE) or str(DEFAULT_LAKE)
    if cluster is not None:
        loaded.cluster_settings(cluster)
    return loaded.policy.lake


def find_lake(lake: str | None, config: str | os.PathLike[str] | None) -> LakeReader:
    """Open the lake that applies for reading.

    Parameters
    ----------
    lake, config
        As for :func:`lake_root`.

    Returns
    -------
    LakeReader
        A reader of a lake that has at least one snapshot.

    Raises
    ------
    UsageError
        When the lake is a file.
    NothingThereError
        When there is no lake yet.
    PolicyError
        When the policy is not valid.
    """
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import SNAPSHOTS

    root = lake_root(lake, config)
    reader = LakeReader(root)
    if reader.paths.is_local and reader.paths.local_root.is_file():
        raise UsageError(f"the lake {root} is a file: name the folder of the tables")
    if not reader.exists(SNAPSHOTS):
        raise NothingThereError(
            f"the lake {root} has no snapshot yet: run a cycle first (evenlag run --bootstrap-servers "
            "HOST:PORT), or name another lake with --lake or --config"
        )
    return reader


def find_cluster(reader: LakeReader, cluster: str | None) -> str:
    """Find which cluster of a lake is meant.

    Parameters
    ----------
    reader
        The lake.
    cluster
        The name that was given, if any.

    Returns
    -------
    str
        A name that the lake has.

    Raises
    ------
    UsageError
        When there are several and none was named.
    NothingThereError
        When the lake has no such cluster.
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

    Parameters
    ----------
    names
        Names of clusters.

    Returns
    -------
    str
        The one name.

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
