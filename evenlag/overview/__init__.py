"""The overview of all groups, and the pages that ``evenlag serve`` and Airflow's page answer with.

It reads the lake and draws pages. It writes nothing and reaches no broker.
"""
