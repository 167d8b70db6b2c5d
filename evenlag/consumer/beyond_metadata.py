"""Claims on partitions that the leader's metadata do not show: newer partitions, or a recreated topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assignor_core.members import Member

# After this time all brokers know a change of a topic, and metadata read since then are newer than the claim.
_BROKERS_AGREE_AFTER_S = 10.0


@dataclass(slots=True)
class BeyondMetadata:
    """Decides whether partitions beyond a topic's known count are new, or no longer exist.

    A leader with older metadata sees claims on partitions that it does not know. Their owners keep them. If
    metadata that were read later still do not show them, or the topic has another id, they do not exist.
    """

    _first_seen_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _topic_ids: dict[str, str] = field(default_factory=dict)

    def find_gone(
        self,
        members: Iterable[Member],
        counts: Mapping[str, int],
        topic_ids: Mapping[str, str],
        refreshed_s: float,
    ) -> set[tuple[str, int]]:
        """Return the claimed (topic, partition) pairs that do not exist.

        refreshed_s: When the metadata were received; monotonic time in seconds.
        """
        beyond = {
            pair for member in members for pair in member.owned if pair[1] >= counts.get(pair[0], pair[1] + 1)
        }
        seen = {(topic, counts[topic]) for topic, _ in beyond}
        self._first_seen_s = {key: self._first_seen_s.get(key, refreshed_s) for key in seen}
        recreated = {
            t for t, _ in seen if t in topic_ids and self._topic_ids.get(t, topic_ids[t]) != topic_ids[t]
        }
        # A recreated topic stays one until no old claim is left.
        self._topic_ids.update({t: i for t, i in topic_ids.items() if t not in recreated})
        is_old = {t for (t, _), first_s in self._first_seen_s.items() if _is_settled(first_s, refreshed_s)}
        gone = recreated | is_old
        self._first_seen_s = {key: s for key, s in self._first_seen_s.items() if key[0] not in gone}
        return {pair for pair in beyond if pair[0] in gone}

    def owes_answer(self, counts: Mapping[str, int], refreshed_s: float) -> bool:
        """Return whether kept partitions turned out not to exist since the last call of `find_gone`.

        refreshed_s: When these metadata were received; monotonic time in seconds.
        """
        return any(
            counts.get(topic) == count and _is_settled(first_s, refreshed_s)
            for (topic, count), first_s in list(self._first_seen_s.items())
        )


def _is_settled(first_s: float, refreshed_s: float) -> bool:
    return refreshed_s - first_s >= _BROKERS_AGREE_AFTER_S
