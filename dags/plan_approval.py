"""The DAG that asks users to approve plans, for the policy that ``EVENLAG_CONFIG`` names."""

from evenlag.airflow import make_dags

make_dags(only=["plan_approval"])
