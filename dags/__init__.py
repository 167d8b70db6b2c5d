"""The DAG files: wiring only. The logic is in the jobs, which the DAGs call by path and arguments."""
