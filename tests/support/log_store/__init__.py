"""Writers that commit to a Delta table through a log store, each in a JVM of its own."""
