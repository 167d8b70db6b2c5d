"""The DAG that compares candidates, if the policy that ``EVENLAG_CONFIG`` names has comparisons."""

from evenlag.airflow import make_dags

make_dags(only=["plan_comparison"])
