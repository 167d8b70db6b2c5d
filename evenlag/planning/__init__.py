"""Planning of groups from Arrow tables, without Spark."""
