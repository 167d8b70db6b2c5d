"""Cache of a group's newest hint: the watcher writes it, the assignor reads it, and neither waits."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assignor_core.errors import HintError, HintSignatureError
from assignor_core.hint import Hint, decode_hint
from evenlag.consumer.events import HintEvent, Reason
from evenlag.consumer.hint_arrays import FlatHint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HintView:
    """The state of the cache at one moment. Immutable, so that a rebalance uses one state throughout.

    Attributes
    ----------
    is_cold
        Whether the existence of a hint is unknown: the watcher has neither read the topic nor given up.
    hint
        The newest accepted hint, expired or not. None without a hint, or after its withdrawal.
    is_stopped
        Whether a record under ``control/stop`` exists: no hint is followed.
    flat
        The hint's assignment as arrays, computed once and not in each rebalance.
    """

    is_cold: bool = True
    hint: Hint | None = None
    is_stopped: bool = False
    flat: FlatHint | None = None

    @property
    def usable_hint(self) -> Hint | None:
        """The hint; None while all hints are stopped."""
        return None if self.is_stopped else self.hint

    @property
    def count_slack(self) -> int:
        """Allowed gap in partition counts in an ordinary rebalance: the newest hint's, 0 without one."""
        hint = self.usable_hint
        return hint.payload.count_slack if hint is not None else 0


class HintCache:
    """A group's newest hint and what was done with hints; safe to use from several threads.

    Parameters
    ----------
    group_id
        The group. Hints for other groups are ignored.
    group_key
        The group's signing key (`assignor_core.hint.derive_group_key`), or several during a key rotation.
        With keys, hints that none of them signed are ignored.
    on_event
        Called with each `HintEvent` on the watcher's thread or kafka-python's I/O thread. It must return at
        once. Its exceptions are logged and not propagated.

    Attributes
    ----------
    group's newest hint and counts of hint events. Thread-safe.
    group_id : str
        The group.
    cluster_id : str or None
        The cluster that hints must be for; None until the watcher is connected.

    Raises
    ------
    ValueError
        If a key is empty, or the sequence of keys is.
    """

    def __init__(
        self,
        group_id: str,
        *,
        group_key: bytes | Sequence[bytes] | None = None,
        on_event: Callable[[HintEvent], None] | None = None,
    ) -> None:
        self.group_id = group_id
        keys = [group_key] if isinstance(group_key, bytes) else list(group_key or ())
        if group_key is not None and not all(keys):
            raise ValueError("a hint key is empty: leave it out, or give what derive_group_key returns")
        if group_key is not None and not keys:
            raise ValueError("no hint key is given: leave hint_key out to take unsigned hints")
        self._group_keys = keys
        self._on_event = on_event
        self._lock = threading.Lock()
        self._view = HintView()
        self._newest: Hint | None = None  # kept when withdrawn: an older hint must not come back
        self._is_withdrawn = False
        self._counts: Counter[Reason] = Counter()
        self._logged: set[tuple[str | None, Reason]] = set()
        self.cluster_id: str | None = None

    @property
    def view(self) -> HintView:
        """The current state."""
        return self._view

    @property
    def counts(self) -> Mapping[Reason, int]:
        """Number of events so far, by reason."""
        with self._lock:
            return dict(self._counts)

    def apply_hint(self, value: bytes | None) -> None:
        """Apply a record of the group's key. Never raises: an invalid hint is ignored and counted.

        Parameters
        ----------
        value
            The record's value; None is a tombstone, which withdraws the hint.
        """
        if value is None:
            self._is_withdrawn = True
            if self._update(hint=None, flat=None):
                self.note(Reason.WITHDRAWN, None, "the hint was withdrawn")
            return
        try:
            hint = self._decode(value)
        except HintError as error:
            self.note(_record_reason(error), None, str(error))
            return
        except Exception as error:  # noqa: BLE001  # bytes from outside must not end the watcher
            self.note(Reason.UNUSABLE, None, f"{type(error).__name__}: {error}")
            return
        if not self._is_newer(hint):
            self.note(Reason.REPLAYED, hint.plan_id, f"sequence {hint.sequence} is not newer")
            return
        self._newest, self._is_withdrawn = hint, False
        is_other = self._view.hint != hint
        if is_other and self._update(hint=hint, flat=FlatHint.of(hint.payload)):
            self.note(Reason.RECEIVED, hint.plan_id, f"sequence {hint.sequence}")

    def apply_stop(self, value: bytes | None) -> None:
        """Apply a record under ``control/stop``.

        Parameters
        ----------
        value
            The record's value. Any value stops all hints; None, a tombstone, resumes them.
        """
        if self._update(is_stopped=value is not None):
            if value is not None:
                self.note(Reason.STOPPED, None, "all hints are stopped")
            else:
                self.note(Reason.RESUMED, None, "hints are followed again")

    def mark_ready(self) -> None:
        """Record that the hint topic has been read to its end."""
        if self._update(is_cold=False):
            self.note(Reason.READY, None, "the hint topic was read to its end")

    def mark_unavailable(self, why: str, *, forget: bool) -> None:
        """Record that the hint topic cannot be read.

        Parameters
        ----------
        why
            The cause, for the log.
        forget
            Whether to drop the hint and the stop, and continue without a hint. Otherwise the current state
            stays.
        """
        changed = forget and self._update(is_cold=False, hint=None, flat=None, is_stopped=False)
        self.note(Reason.UNAVAILABLE, None, why, again=changed)

    def note(self, reason: Reason, plan_id: str | None, detail: str = "", *, again: bool = False) -> None:
        """Count an event, call the callback, and log the first event of this reason for this plan.

        Parameters
        ----------
        reason
            The reason.
        plan_id
            The plan; None if the event concerns no plan.
        detail
            Details for the log; never a secret.
        again
            Whether to log it even if it is not the first.
        """
        with self._lock:
            self._counts[reason] += 1
            if len(self._logged) > 1000:  # noqa: PLR2004  # bounds memory in a long-running process
                self._logged.clear()
            is_first = (plan_id, reason) not in self._logged
            self._logged.add((plan_id, reason))
        if is_first or again:
            _log.info(
                "group %s: hint %s %s: %s",
                *(self.group_id, plan_id or "-", reason.value, detail),
                # For applications with structured logs.
                extra={"group_id": self.group_id, "plan_id": plan_id, "reason": reason.value},
            )
        if self._on_event is not None:
            try:
                self._on_event(HintEvent(reason, plan_id, detail))
            except Exception:  # noqa: BLE001  # the application's code, on our threads
                _log.exception("the callback for hint events failed")

    def _decode(self, value: bytes) -> Hint:
        for key in self._group_keys[:-1]:
            try:
                return self._decode_with(value, key)
            except HintSignatureError:
                continue
        return self._decode_with(value, self._group_keys[-1] if self._group_keys else None)

    def _decode_with(self, value: bytes, key: bytes | None) -> Hint:
        return decode_hint(value, group_id=self.group_id, group_key=key, cluster_id=self.cluster_id)

    def _is_newer(self, hint: Hint) -> bool:
        last = self._newest
        if last is None:
            return True
        if (hint.plan_id, hint.sequence) == (last.plan_id, last.sequence) and not self._is_withdrawn:
            return True  # the publisher repeats a record after a crash
        # A replay is older by both. The hint of a publisher that lost its sequence is newer by time, and that
        # of a publisher whose clock stepped back is newer by sequence.
        return hint.sequence > last.sequence or hint.issued_at_ms > last.issued_at_ms

    def _update(self, **changes: object) -> bool:
        with self._lock:
            before = self._view
            self._view = replace(before, **changes)  # type: ignore[arg-type]  # names are HintView's
            return self._view != before


def _record_reason(error: HintError) -> Reason:
    try:
        return Reason(error.reason)
    except ValueError:
        return Reason.UNUSABLE
