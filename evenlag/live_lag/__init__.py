"""Lag of a running cluster, read directly: without a lake, Spark and Java.

:mod:`~evenlag.live_lag.snapshot` reads a cluster once, :mod:`evenlag.lag` counts the
lag as for the jobs, :mod:`~evenlag.live_lag.time_behind` asks the brokers for how long a group is
behind, and :mod:`~evenlag.live_lag.answer` has rows of groups, plans each group on the spot, and keeps the
lag of the last snapshots. Nothing is written and nothing is published.
"""
