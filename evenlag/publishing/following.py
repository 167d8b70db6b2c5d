"""Groups that follow their hints while later cycles of the process run."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from evenlag.logging_setup import named_logger
from evenlag.publishing.publish_checks import Plan, RefusedPlan

_LOG = named_logger(__name__)
_PLANNED_MEANWHILE: Final = "it was planned while the group followed another hint"


@dataclass(slots=True)
class _Followed:
    """The last plan of a group that was waited for, and when its wait ended; None: it goes on."""

    plan_id: str
    ended_at: datetime | None = None


@dataclass(slots=True)
class Following:
    """The waits of a cluster; their plans have no PUBLISHED event until they end.

    A process that ends leaves them as one that is killed in a wait: the next run finds the hints and waits.
    """

    _by_group: dict[str, _Followed] = field(default_factory=dict)
    _not_taken_up: list[tuple[str, str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def plan_ids(self) -> frozenset[str]:
        """The plans that are waited for."""
        with self._lock:
            return frozenset(each.plan_id for each in self._by_group.values() if each.ended_at is None)

    def split(self, plans: Sequence[Plan]) -> tuple[list[Plan], list[RefusedPlan]]:
        """Return the plans that nothing waits for, and those that do not apply any more.

        What a group followed since is not in the snapshot of such a plan.
        """
        now, others, refused = datetime.now(UTC), list[Plan](), list[RefusedPlan]()
        with self._lock:
            for plan in plans:
                last, slot = self._by_group.get(plan["group_id"]), plan.get("slot")
                if last is None or slot is None or slot >= (last.ended_at or now):
                    others.append(plan)
                elif last.plan_id != plan["plan_id"]:
                    refused.append(RefusedPlan(plan, _PLANNED_MEANWHILE, now))
                elif last.ended_at is not None:
                    # Its wait could not record it.
                    others.append(plan)
        return others, refused

    def start(self, plans: Sequence[Plan], wait: Future[dict[str, str]]) -> None:
        """Keep a wait for plans, one of each group, which records them.

        wait: Its result is why groups do not follow.
        """
        followed = {plan["group_id"]: _Followed(plan["plan_id"]) for plan in plans}
        with self._lock:
            self._by_group |= followed
        wait.add_done_callback(partial(self._end, followed))

    def take_not_taken_up(self) -> list[tuple[str, str, str]]:
        """Return what was not followed, of waits that ended since the last call: (group, plan, reason)."""
        with self._lock:
            taken, self._not_taken_up = self._not_taken_up, []
        return taken

    def _end(self, followed: Mapping[str, _Followed], wait: Future[dict[str, str]]) -> None:
        error = wait.exception()
        if error is not None:
            # The next cycle finds the hints on the topic, and waits again.
            _LOG.warning("published hints are recorded by the next cycle: %s", error, exc_info=error)
        reasons = {} if error is not None else wait.result()
        with self._lock:
            for group_id, each in followed.items():
                each.ended_at = datetime.now(UTC)
                if group_id in reasons:
                    self._not_taken_up.append((group_id, each.plan_id, reasons[group_id]))
