"""The DAG of the audit, for the policy that ``EVENLAG_CONFIG`` names."""

from evenlag.airflow import make_dags

make_dags(only=["assignment_audit"])
