"""A replay that is asked for the lag between snapshots, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evenlag.simulation.estimates import Case
from evenlag.simulation.fluid_model import Replay, Servers, Simulated, around_likely

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Floats
    from evenlag.simulation.estimates import Estimates
    from evenlag.simulation.history import History
    from evenlag.simulation.scenarios import Scenario


def simulate_probed(
    history: History, scenarios: Sequence[Scenario], estimates: Estimates, probe_s: Floats
) -> tuple[Simulated, Floats]:
    """Simulate, and return the lag of the most loaded member at N moments, too: [N, 3, L].

    probe_s: Ascending moments between snapshots, seconds since the epoch.
    """
    replay = _ProbedReplay(history, scenarios, estimates, probe_s)
    return replay.run(), np.stack([around_likely(each) for each in replay.probed])


class _ProbedReplay(Replay):
    def __init__(
        self, history: History, scenarios: Sequence[Scenario], estimates: Estimates, probe_s: Floats
    ) -> None:
        super().__init__(history, scenarios, estimates)
        self._probe_s = probe_s
        self.probed: list[Floats] = []

    def _cuts_s(self, place: int) -> list[float]:
        return sorted({*super()._cuts_s(place), *self._probes_s(place).tolist()})

    def _advance_part(
        self, place: int, span_s: tuple[float, float], servers: Servers, capacity: Floats
    ) -> None:
        if span_s[0] in self._probes_s(place):
            self._probe(place, span_s[0])
        super()._advance_part(place, span_s, servers, capacity)

    def _probes_s(self, place: int) -> Floats:
        since_s = self._probe_s - self._history.at_s[place]
        chosen: Floats = since_s[(since_s >= 0) & (since_s < self._history.interval_s[place])]
        return chosen

    def _probe(self, place: int, since_s: float) -> None:
        """Note the lag within an interval: what may have come is more or less than in the bounds' cases."""
        came = [self._estimates.arrived_by(case, place, since_s) for case in (Case.LEAST, Case.MOST)]
        open_records = np.where(self._is_begun, (came[0] - came[1]).clip(min=0.0), 0.0)
        backlog = self._backlog.copy()
        backlog[Case.MOST] += open_records
        backlog[Case.LEAST] = backlog[Case.LEAST] - open_records
        by_member = self._member_lag(backlog)[..., :-1]
        self.probed.append(by_member.max(axis=2, initial=0.0).clip(min=0.0))
