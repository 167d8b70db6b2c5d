"""The lag that a group would have had under another policy: a fluid model, in numpy only.

Records are a fluid. Between two snapshots, for each partition ``i`` with backlog ``b_i`` records:

- **arrivals** ``a_i`` records/s are the growth of its end offset, evenly over the interval;
- **processing** ``r_i`` records/s is what its member processes, and ``db_i/dt = a_i - r_i``, never below 0;
- a **member** ``m`` of capacity ``C_m`` records/s serves its partitions alike: ``r_i = min(d_i, s_m)``, where
  the demand ``d_i`` is unlimited while there is a backlog and ``a_i`` when there is none, and the level
  ``s_m`` is the highest with ``sum(r_i) <= C_m`` (max-min fairness, "water-filling"): what a partition
  does not need goes to the others;
- in a **rebalance** a partition pauses (``r_i = 0``) until it is ready again: all of the group when the
  assignor is EAGER; in COOPERATIVE mode those that move, and all others for the client's stall;
- **time lag** of a partition is the age of the oldest record not yet processed, first in, first out: now less
  the moment at which the end offset passed what is processed.

Within an interval rates change only when a partition runs empty or becomes ready, so the model jumps from
one such moment to the next and is exact: there is no time step (:mod:`spark_jobs.simulation.fluid_model`).
"""
