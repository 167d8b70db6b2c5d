"""The cycles: one DAG for each cluster of the policy that ``EVENLAG_CONFIG`` names."""

from evenlag.airflow import make_dags

make_dags(only=["lag_rebalance"])
