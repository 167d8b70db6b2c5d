"""Cache of a group's newest hint and loads: a watcher writes it, an assignor reads it, and neither waits."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from assignor_core.errors import HintError, HintSignatureError, HintVersionError
from assignor_core.hint import Hint, decode_hint
from assignor_core.loads import Loads, decode_loads
from evenlag.consumer.events import HintEvent, Reason, named_logger
from evenlag.consumer.hint_arrays import FlatHint
from evenlag.consumer.record_marks import NewerHint, Verdict, hint_marks, loads_marks

_R = TypeVar("_R")
_log = named_logger(__name__)


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
    loads
        The newest accepted loads, fresh or not. None without loads, or after their withdrawal.
    """

    is_cold: bool = True
    hint: Hint | None = None
    is_stopped: bool = False
    flat: FlatHint | None = None
    loads: Loads | None = None

    @property
    def usable_hint(self) -> Hint | None:
        """The hint; None while all hints are stopped."""
        return None if self.is_stopped else self.hint

    @property
    def usable_loads(self) -> Loads | None:
        """The loads; None while all hints are stopped, which stops loads too."""
        return None if self.is_stopped else self.loads


class HintCache:
    """A group's newest hint and loads, and counts of hint events; safe to use from several threads.

    Parameters
    ----------
    group_id
        The group. Hints for other groups are ignored.
    group_key
        The group's signing key (`assignor_core.hint.derive_group_key`), or several during a key rotation.
        With keys, hints that none of them signed are ignored.
    required_signing
        Whether a key must be given: without one, unsigned hints would be followed.
    on_event
        Called with each `HintEvent` on the watcher's thread or kafka-python's I/O thread. It must return at
        once. Its exceptions are logged and not propagated.
    now_ms
        Returns milliseconds since the epoch; replaced in tests.

    Attributes
    ----------
    group_id : str
        The group.
    cluster_id : str or None
        The cluster that hints must be for; None until the watcher is connected.
    first_plan_id : str or None
        The plan that was on the topic when it was first read; None without one.

    Raises
    ------
    ValueError
        If a key is empty, or the sequence of keys is, or a required key is missing.
    """

    def __init__(
        self,
        group_id: str,
        *,
        group_key: bytes | Sequence[bytes] | None = None,
        required_signing: bool = False,
        on_event: Callable[[HintEvent], None] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.group_id = group_id
        if required_signing and group_key is None:
            raise ValueError("required_signing needs a hint_key: give what derive_group_key returns")
        keys = [group_key] if isinstance(group_key, bytes) else list(group_key or ())
        if group_key is not None and not all(keys):
            raise ValueError("a hint key is empty: leave it out, or give what derive_group_key returns")
        if group_key is not None and not keys:
            raise ValueError("no hint key is given: leave hint_key out to take unsigned hints")
        self._group_keys = keys
        self._on_event = on_event
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._view = HintView()
        self._hints = hint_marks()
        self._loads = loads_marks()
        self._topic_id: str | None = None
        self._is_unavailable = False
        self._is_first_read = True
        self._counts: Counter[Reason] = Counter()
        self._logged: set[tuple[str | None, Reason]] = set()
        self.cluster_id: str | None = None
        self.first_plan_id: str | None = None

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
        """Apply a record of the group's hint key. Never raises: an invalid hint is ignored and counted.

        Parameters
        ----------
        value
            The record's value; None is a tombstone, which withdraws the hint.
        """
        if value is None:
            self._hints.withdraw()
            if self._update(hint=None, flat=None):
                self.note(Reason.WITHDRAWN, None, "the hint was withdrawn")
            return
        hint = self._try_decode(lambda: self._decode_hint(value))
        if hint is not None:
            self._offer_hint(hint)

    def apply_loads(self, value: bytes | None) -> None:
        """Apply a record of the group's loads key. Never raises, as `apply_hint`.

        Parameters
        ----------
        value
            The record's value; None is a tombstone, which withdraws the loads.
        """
        if value is None:
            self._loads.withdraw()
            if self._update(loads=None):
                self.note(Reason.LOADS_WITHDRAWN, None, "the loads were withdrawn")
            return
        loads = self._try_decode(lambda: self._decode(value, decode_loads))
        if loads is not None:
            self._offer_loads(loads)

    def promote(self) -> None:
        """Apply records that were from the future and no longer are; called on the watcher's thread."""
        hint, loads = self._hints.promote(self._now_ms()), self._loads.promote(self._now_ms())
        if hint is not None:
            self._offer_hint(hint)
        if loads is not None:
            self._offer_loads(loads)

    def apply_stop(self, value: bytes | None) -> None:
        """Apply a record under ``control/stop``.

        Parameters
        ----------
        value
            The record's value. Any value stops all hints and loads; None, a tombstone, resumes them.
        """
        if self._update(is_stopped=value is not None):
            if value is not None:
                self.note(Reason.STOPPED, None, "all hints are stopped")
            else:
                self.note(Reason.RESUMED, None, "hints are followed again")

    def start_topic(self, topic_id: str | None) -> None:
        """Record which topic is read: a topic that was deleted and created again begins without any hint.

        Parameters
        ----------
        topic_id
            The hint topic's id; None if the brokers have no topic ids.
        """
        is_other = None not in (self._topic_id, topic_id) and topic_id != self._topic_id
        self._topic_id = topic_id or self._topic_id
        if is_other:
            self._hints, self._loads = hint_marks(), loads_marks()
            self._update(is_cold=True, hint=None, flat=None, loads=None, is_stopped=False)
            self.note(Reason.TOPIC_RECREATED, None, f"the hint topic is another one: {topic_id}", again=True)

    def mark_ready(self) -> None:
        """Record that the hint topic has been read to its end."""
        hint, is_back = self._view.usable_hint, self._is_unavailable
        if self._is_first_read and hint is not None:
            self.first_plan_id = hint.plan_id
        self._is_first_read = self._is_unavailable = False
        if self._update(is_cold=False) or is_back:
            self.note(Reason.READY, None, "the hint topic was read to its end", again=is_back)

    def mark_unavailable(self, why: str, *, forget: bool) -> None:
        """Record that the hint topic cannot be read.

        Parameters
        ----------
        why
            The cause, for the log.
        forget
            Whether to drop hint, loads and stop, and continue without a hint. Otherwise the current state
            stays.
        """
        gone = {"is_cold": False, "hint": None, "flat": None, "loads": None, "is_stopped": False}
        changed = forget and self._update(**gone)
        self._is_first_read = self._is_first_read and not forget
        is_first, self._is_unavailable = not self._is_unavailable, True
        self.note(Reason.UNAVAILABLE, None, why, again=changed or is_first)

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

    def _try_decode(self, decode: Callable[[], _R]) -> _R | None:
        try:
            return decode()
        except HintError as error:
            self.note(_record_reason(error), None, str(error))
        except Exception as error:  # noqa: BLE001  # bytes from outside must not end the watcher
            self.note(Reason.UNUSABLE, None, f"{type(error).__name__}: {error}")
        return None

    def _decode_hint(self, value: bytes) -> Hint | NewerHint:
        try:
            return self._decode(value, decode_hint)
        except HintVersionError as error:
            return NewerHint(error.plan_id, error.sequence, error.issued_at_ms)

    def _decode(self, value: bytes, decode: Callable[..., _R]) -> _R:
        for key in self._group_keys[:-1]:
            try:
                return decode(value, group_id=self.group_id, group_key=key, cluster_id=self.cluster_id)
            except HintSignatureError:
                continue
        last = self._group_keys[-1] if self._group_keys else None
        return decode(value, group_id=self.group_id, group_key=last, cluster_id=self.cluster_id)

    def _offer_hint(self, hint: Hint | NewerHint) -> None:
        verdict = self._hints.offer(hint, self._now_ms())
        if verdict is Verdict.FUTURE:
            self.note(Reason.FUTURE, hint.plan_id, "the hint was issued in the future: not used yet")
        elif verdict is Verdict.REPLAYED:
            self.note(Reason.REPLAYED, hint.plan_id, f"sequence {hint.sequence} is not newer")
        elif verdict is Verdict.TAKEN and isinstance(hint, NewerHint):
            self._update(hint=None, flat=None)
            self.note(Reason.NEWER_FORMAT, hint.plan_id, f"sequence {hint.sequence}: upgrade this client")
        elif isinstance(newest := self._hints.newest, Hint) and newest != self._view.hint:
            self._update(hint=newest, flat=FlatHint.of(newest.payload))
            self.note(Reason.RECEIVED, newest.plan_id, f"sequence {newest.sequence}")

    def _offer_loads(self, loads: Loads) -> None:
        verdict = self._loads.offer(loads, self._now_ms())
        if verdict is Verdict.FUTURE:
            self.note(Reason.FUTURE, None, "the loads were measured in the future: not used yet")
        elif verdict is Verdict.REPLAYED:
            self.note(Reason.REPLAYED, None, "newer loads are known")
        elif self._update(loads=self._loads.newest):
            measured = loads.payload.measured_at_ms
            self.note(Reason.LOADS_RECEIVED, None, f"loads measured at {measured}")

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
