"""The DAG files: each calls :func:`evenlag.airflow.make_dags` for one kind of DAG."""
