"""A complete Airflow in its own folder, and a client of its REST API."""
