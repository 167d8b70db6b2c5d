"""Manifests of autoscalers that follow the advice: a KEDA ScaledObject, or a HorizontalPodAutoscaler."""

import json
import re
from typing import Any, Final

from evenlag.errors import UsageError
from evenlag.safe_text import label_text, printable

METRIC: Final = "evenlag_group_members_needed"
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NOT_IN_NAMES: Final = re.compile("[^a-z0-9]+")
_ABOUT: Final = """\
# Scales {deployment} to the members that evenlag advises for the group {group}.
# - evenlag holds its advice: more members at once, fewer when fewer were sufficient for 15 minutes.
# - The HPA changes nothing within its tolerance of 10 %: from ten members up, one member more or fewer is
#   not scaled for, two are from 20 up, and so on. Kubernetes 1.33 and newer can set a smaller tolerance.
# - A metric that is missing or old holds the number of members; nothing is scaled to zero.
# - More members than partitions, {most}, would have nothing to do.
"""


def manifest_text(
    kind: str, cluster: str, group: str, deployment: str | None, prometheus: str, most: int
) -> str:
    """Return a manifest as YAML. most: the number of the group's partitions."""
    import yaml

    # By the group's name without what Kubernetes does not allow.
    name = deployment or _NOT_IN_NAMES.sub("-", group.lower())[:52].strip("-") or "consumers"
    head = _ABOUT.format(deployment=printable(name), group=printable(group), most=most)
    found = (
        _keda(name, cluster, group, prometheus, most) if kind == "keda" else _hpa(name, cluster, group, most)
    )
    return head + str(yaml.safe_dump(found, sort_keys=False, allow_unicode=False))


def _keda(name: str, cluster: str, group: str, prometheus: str, most: int) -> dict[str, Any]:
    # A JSON string is a string of PromQL, but for escapes of surrogates; the reason is a label, too.
    cluster, group = (json.dumps(each, ensure_ascii=False) for each in (cluster, label_text(group)))
    labels = f"cluster={cluster},group={group}"
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": prometheus,
            "query": f"max({METRIC}{{{labels}}})",
            "threshold": "1",
            # Else a query without a result would be 0, and scale down.
            "ignoreNullValues": "false",
        },
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": f"{name}-members"},
        "spec": {
            "scaleTargetRef": {"name": name},
            "pollingInterval": 30,
            "minReplicaCount": 1,
            "maxReplicaCount": most,
            "triggers": [trigger],
        },
    }


def _hpa(name: str, cluster: str, group: str, most: int) -> dict[str, Any]:
    labels = {"cluster": cluster, "group": printable(group)}
    for value in labels.values():
        if not _LABEL.fullmatch(value):
            raise UsageError(
                f"{value!r} cannot be the value of a label of a HorizontalPodAutoscaler: use --manifest keda"
            )
    metric = {
        "type": "External",
        "external": {
            "metric": {"name": METRIC, "selector": {"matchLabels": labels}},
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{name}-members"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [metric],
        },
    }
