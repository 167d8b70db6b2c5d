"""The demo: a real broker, a skewed group, Airflow, and the page that shows what came of it."""
