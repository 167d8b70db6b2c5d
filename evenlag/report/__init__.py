"""The report: one group's period on one page that asks nobody for anything.

`read` brings the period together from the lake without a JVM, `page` lays it out. Typer has no part in it:
Airflow's page shows the same report.
"""
