"""Data quality: the checks of snapshots as data, their measures and verdicts, and the Data Docs. No JVM."""
