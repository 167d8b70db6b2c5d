"""The DAGs: one module each, built by :func:`evenlag.airflow.make_dags`."""
