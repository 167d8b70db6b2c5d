"""A whole Airflow in a folder of its own, and its REST interface."""
