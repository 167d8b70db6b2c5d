"""The demo: a real broker, a skewed group, Airflow, and a page with the results."""
