"""The DAG that maintains the lake of the policy that ``EVENLAG_CONFIG`` names."""

from evenlag.airflow import make_dags

make_dags(only=["table_maintenance"])
