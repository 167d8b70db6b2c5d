"""Hint and loads of a group as evenlag publishes them and its consumers read them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.hint import HintPayload, decode_hint, encode_hint, member_key
from assignor_core.loads import LoadFlow, Loads, LoadsPayload
from evenlag.consumer.cache import HintView
from evenlag.consumer.hint_arrays import FlatHint
from evenlag.consumer.target_selection import choose_target, group_fingerprint
from evenlag.publishing.loads import keep_material_flow, material_change, scale_capacities
from tests.bench.field.contenders.group import TOPIC_ID, TOPIC_IDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assignor_core.group import Group
    from evenlag.consumer.target_selection import Decision
    from evenlag.lag.arrays import Int32s, Int64s
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.publishing.scaled_loads import ScaledFlow

    Scaled = tuple[Int64s, ScaledFlow | None]


class Published:
    """What is on the hint topic for one group of one topic."""

    def __init__(self, rule: GroupSettings) -> None:
        self._rule = rule
        self._view = HintView(is_cold=False)
        self._sequence = 0

    def choose(self, group: Group, now_s: float) -> Decision:
        """Return what the group's leader decides."""
        return choose_target(group, self._view, TOPIC_IDS, now_ms=round(1000 * now_s))

    def write_hint(self, group: Group, target: Int32s, now_s: float) -> None:
        """Publish a target of a group, row → member."""
        self._sequence += 1
        fingerprint = group_fingerprint(group, TOPIC_IDS)
        assert fingerprint is not None
        payload = HintPayload(
            cluster_id="cluster",
            group_id="group",
            snapshot_id="snapshot",
            fingerprint=fingerprint,
            assignment={
                key: {TOPIC_ID: tuple(np.flatnonzero(target == member).tolist())}
                for member, key in enumerate(instances_of(group))
            },
            count_slack=self._rule.slack,
            max_moves=self._rule.max_moves,
        )
        issued_ms = round(1000 * now_s)
        value = encode_hint(
            payload.encode(),
            sequence=self._sequence,
            issued_at_ms=issued_ms,
            expires_at_ms=issued_ms + 1000 * self._rule.hint_ttl_s,
        )
        hint = decode_hint(value, group_id="group")
        self._view = replace(self._view, hint=hint, flat=FlatHint.of(hint.payload))

    def write_loads(
        self, instances: Mapping[str, str | None], scaled: Scaled, measured_s: float, now_s: float
    ) -> None:
        """Publish loads by partition and their flow, if they differ materially from the published ones.

        instances: Instance ids of the members, by member key.
        """
        measured = self.loads(instances, scaled, measured_s)
        known = self._view.loads
        if known is None or material_change(known.payload, measured, round(1000 * now_s)):
            record = Loads(payload=measured, payload_bytes=b"", signed=False)
            self._view = replace(self._view, loads=record)

    def loads(self, instances: Mapping[str, str | None], scaled: Scaled, measured_s: float) -> LoadsPayload:
        """Return a record of loads; see `write_loads`."""
        load, flow = scaled
        rule, measured_at_ms = self._rule, round(1000 * measured_s)
        default_capacity, capacities = scale_capacities(
            {key: rule.capacity_of(instance) for key, instance in instances.items()}
        )
        payload = LoadsPayload(
            cluster_id="cluster",
            group_id="group",
            snapshot_id=f"at {measured_at_ms} ms",
            measured_at_ms=measured_at_ms,
            valid_until_ms=measured_at_ms + 60_000 * rule.loads_valid_minutes,
            loads={TOPIC_ID: load.tolist()},
            capacities=capacities,
            default_capacity=default_capacity,
            count_slack=rule.slack,
            max_moves=rule.max_moves,
            flow=None if flow is None else record_flow(flow, TOPIC_ID),
        )
        return keep_material_flow(payload)


def record_flow(flow: ScaledFlow, topic_id: str) -> LoadFlow:
    """Return the flow of a record with one topic."""
    return LoadFlow(
        arrivals={topic_id: flow.arrivals.tolist()},
        owners={topic_id: [None if owner < 0 else owner for owner in flow.owners.tolist()]},
        speeds=flow.speeds.tolist(),
        per_s=flow.per_s,
        horizon_s=flow.horizon_s,
    )


def instances_of(group: Group) -> dict[str, str | None]:
    """Return the instance ids of a group's members by their keys, in the group's order."""
    keys = map(member_key, group.member_ids, group.instance_ids)
    return dict(zip(keys, group.instance_ids, strict=True))
