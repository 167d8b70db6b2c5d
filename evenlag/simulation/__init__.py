"""The lag that a group would have had with another assignor: a fluid model, in numpy only.

Records are a fluid. Between two snapshots, for each partition ``i`` with backlog ``b_i`` records:

- **arrivals** ``a_i`` records/s are the growth of its end offset, spread evenly over the interval;
- **processing** ``r_i`` records/s is what its member processes, and ``db_i/dt = a_i - r_i``, never below 0;
- a **member** ``m`` of capacity ``C_m`` records/s serves its partitions equally: ``r_i = min(d_i, s_m)``. The
  demand ``d_i`` is unlimited while there is a backlog, and ``a_i`` otherwise. The level ``s_m`` is the
  highest with ``sum(r_i) <= C_m`` (max-min fairness, "water-filling"): capacity that a partition does not
  need goes to the others;
- in a **rebalance** a partition pauses (``r_i = 0``) until it is ready again: all partitions of the group
  with an EAGER assignor; with a COOPERATIVE one those that move, and all others while the client stalls;
- the **time lag** of a partition is the age of the oldest unprocessed record, first in, first out: the
  current time minus the time when the end offset passed the processed offset;
- the **waiting** of a record is the start of its processing minus its arrival
  (:mod:`evenlag.simulation.waiting`).

Within an interval, rates change only when a backlog reaches 0 or a partition becomes ready. So the model
jumps from one of these events to the next and is exact: it has no time step
(:mod:`evenlag.simulation.fluid_model`).
"""
