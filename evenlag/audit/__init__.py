"""Queries on the audit tables, without a JVM: owners, rebalances and their causes, anomalies."""
