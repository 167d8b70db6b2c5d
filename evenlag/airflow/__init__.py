"""The parts of evenlag that run inside Airflow."""
