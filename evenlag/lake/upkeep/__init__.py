"""Upkeep of the tables that `deltalake` writes, without a JVM."""
