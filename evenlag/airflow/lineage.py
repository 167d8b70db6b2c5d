"""Lineage of each step for Airflow's OpenLineage provider.

OpenLineage is imported only when the provider requests lineage. The lineage contains names only: of tables,
topics and the columns of the table contracts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import ParseResult, urlparse

from evenlag.lake.tables import TABLES, Table
from evenlag.policy.loader import read_policy, replaced_environment

# Kafka stores the committed offsets in this topic.
OFFSETS_TOPIC: Final = "__consumer_offsets"
# Names between slashes are placeholders of topics, all others are tables of the lake.
_COMMITS: Final = "/commits/"
_HINTS: Final = "/hints/"

_BRONZE: Final = ("snapshots", "offsets", "commits", "members")
_EVENTS: Final = "plan_events"
_MAINTAINED: Final = tuple(name for name in TABLES if name != "table_health")

# Inputs and outputs of each step: names of tables, and placeholders of topics.
STEPS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "observe": (
        (
            *(_COMMITS, "snapshots", "offsets", "members", "lag", "speeds", "advice"),
            *("plans", "plan_assignments", _EVENTS, "outcomes"),
        ),
        (
            *(*_BRONZE, "lag", "hourly_rates", "forecasts", "speeds", "advice"),
            *("outcomes", "plan_evaluations", _EVENTS, "quality_results", "runs"),
        ),
    ),
    "decide": (
        (
            *("snapshots", "members", "lag", "speeds", "forecasts"),
            *("decisions", "plan_evaluations", "quality_results", _EVENTS),
        ),
        ("plan_assignments", "plans", "decisions", "gate_results", _EVENTS, "policies", "runs"),
    ),
    "publish": (
        (_HINTS, "plans", "plan_assignments", _EVENTS, "gate_results", "lag", "members", "speeds"),
        (_HINTS, _EVENTS),
    ),
    "ask": (
        ("plans", "plan_assignments", "gate_results", _EVENTS, "approval_requests"),
        ("approval_requests",),
    ),
    "answer": (("plans", "gate_results", _EVENTS, "approval_requests"), (_EVENTS,)),
    "audit": (("snapshots", "members", "offsets"), ("memberships", "ownership", "audited_snapshots")),
    "compare": (("snapshots", "members", "lag", "speeds"), ("comparisons", "replays", "continuous_replays")),
    "data_docs": (("gate_results", "quality_results", "runs"), ()),
    # For all clusters together, whichever program writes a table.
    "maintain_tables": (_MAINTAINED, (*_MAINTAINED, "table_health")),
}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset, named by OpenLineage's conventions: https://openlineage.io/docs/spec/naming."""

    namespace: str
    name: str
    table: Table | None = None


def table_dataset(lake: str, table: Table) -> Dataset:
    """Return the dataset of a table.

    Examples
    --------
    >>> found = table_dataset("s3a://bucket/lake/", TABLES["lag"])
    >>> found.namespace, found.name
    ('s3://bucket', 'lake/lag')
    >>> found = table_dataset("/srv/lake", TABLES["lag"])
    >>> found.namespace, found.name
    ('file', '/srv/lake/lag')
    >>> table_dataset("gs://user:secret@bucket/lake", TABLES["lag"]).namespace
    'gs://bucket'
    """
    parsed = urlparse(lake)
    path = f"{parsed.path.rstrip('/')}/{table.name}"
    if parsed.scheme in {"", "file"}:
        return Dataset("file", path, table)
    scheme = "s3" if parsed.scheme in {"s3", "s3a", "s3n"} else parsed.scheme
    name = path if scheme == "hdfs" else path.lstrip("/")
    return Dataset(f"{scheme}://{_authority(parsed)}", name, table)


def _authority(parsed: ParseResult) -> str:
    """Return bucket or host and port without user and password, which a lineage backend must not get."""
    user, _, host = parsed.netloc.rpartition("@")
    # Azure writes the container where others write the user.
    container = user.partition(":")[0] if parsed.scheme in {"abfs", "abfss", "wasb", "wasbs"} else ""
    return f"{container}@{host}" if container else host


def step_datasets(step: str, config: str, cluster: str | None) -> tuple[list[Dataset], list[Dataset]]:
    """Return the inputs and outputs of a step; a step of the whole lake has no cluster."""
    policy = read_policy(config).policy

    def named(name: str) -> Dataset:
        if cluster is None or name in TABLES:
            return table_dataset(policy.lake, TABLES[name])
        settings = policy.clusters[cluster]
        server = settings.bootstrap_servers[0].rpartition("://")[2]
        topic = {_COMMITS: OFFSETS_TOPIC, _HINTS: settings.hint_topic}[name]
        return Dataset(f"kafka://{server}", topic)

    inputs, outputs = STEPS[step]
    return [named(name) for name in inputs], [named(name) for name in outputs]


def with_lineage(
    task: Any,
    steps: Sequence[str],
    config: str,
    clusters: Sequence[str | None] = (None,),
    *,
    is_of_run: bool = False,
) -> None:
    """Add inputs and outputs, with their columns, to a task of clusters, or of the run's ``cluster``."""

    def lineage(task_instance: Any) -> Any:
        from airflow.providers.openlineage.extractors import OperatorLineage

        from evenlag.airflow.kafka_connection import SERVERS_READ

        names = clusters
        if is_of_run:
            names = [task_instance.get_template_context()["params"]["cluster"]]
        # Each dataset once, in order.
        inputs: dict[Dataset, None] = {}
        outputs: dict[Dataset, None] = {}
        for name in names:
            with replaced_environment(SERVERS_READ.get(name, {})):
                for step in steps:
                    read, written = step_datasets(step, config, name)
                    inputs |= dict.fromkeys(read)
                    outputs |= dict.fromkeys(written)
        return OperatorLineage(
            inputs=list(map(_openlineage, inputs)), outputs=list(map(_openlineage, outputs))
        )

    # Calling a decorated function returns its future result; the operator is an attribute of it.
    vars(getattr(task, "operator", task))["get_openlineage_facets_on_complete"] = lineage


def _openlineage(dataset: Dataset) -> Any:
    from openlineage.client.event_v2 import Dataset as OpenLineageDataset
    from openlineage.client.facet_v2 import schema_dataset

    facets: dict[str, Any] = {}
    if dataset.table is not None:
        columns = [
            schema_dataset.SchemaDatasetFacetFields(name=one.name, type=one.type, description=one.doc)
            for one in dataset.table.columns
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=columns)
    return OpenLineageDataset(namespace=dataset.namespace, name=dataset.name, facets=facets)
