"""The DAG files: wiring only. Logic is in the jobs, which are named here by path and arguments."""
