"""Assets of a cluster, on which other DAGs can be scheduled: snapshots, plans and hints.

``evenlag://<cluster>/snapshots`` is updated by every snapshot, ``…/plans`` and ``…/hints`` only if there is
a new plan or a new hint. A prefix of the DAG ids is part of the name, ``evenlag://<prefix><cluster>/hints``,
so that two policies may name their clusters alike. Cluster names and prefixes need no escaping in a URI.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

SCHEME: Final = "evenlag"


class Product(StrEnum):
    """What a cycle makes of a cluster."""

    SNAPSHOTS = "snapshots"
    PLANS = "plans"
    HINTS = "hints"


def cluster_asset(dag_prefix: str, cluster: str, product: Product) -> Asset:
    """Return an asset of a cluster."""
    # Only the URI: a consumer that names the same URI means the same asset.
    return Asset(uri=f"{SCHEME}://{dag_prefix}{cluster}/{product}")


def product_alias(dag_id: str, product: Product) -> AssetAlias:
    """Return the alias by which a DAG updates an asset only if there is something new.

    An outlet that is an asset is updated whenever its task succeeds.
    """
    return AssetAlias(name=f"{SCHEME}-{product}-{dag_id}")


def update_asset(
    context: Mapping[str, Any], alias: AssetAlias, asset: Asset, *, count: int, slot: datetime
) -> None:
    """Update an asset if there is something new.

    count: How many plans or hints are new; 0: nothing happens.
    """
    if count:
        context["outlet_events"][alias].add(asset, extra={"count": count, "slot": slot.isoformat()})
