"""The operators and tasks of the DAGs, and what they share."""
