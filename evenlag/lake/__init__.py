"""The lake: contracts of its tables, and reads and writes without a JVM."""
