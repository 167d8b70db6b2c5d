"""The one formula of lag, on Arrow and numpy arrays: without a JVM, a broker or a lake.

:mod:`~evenlag.lag.partitions` has the rules of groups (which partitions count, what is known of a group,
who owns a partition) and joins few rows, :mod:`~evenlag.lag.formula` counts lag, rates and times of joined
rows, :mod:`~evenlag.lag.arrays` has the points that times behind are read from, and
:mod:`~evenlag.lag.group_lag` sums up groups. Spark joins many rows and runs the formula by ``mapInArrow``;
small snapshots, `evenlag lag -b` and the check before publishing call it directly.
"""
