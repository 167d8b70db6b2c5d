"""Planning one group from Arrow data, without Spark."""
