"""The runtime of all jobs: the Spark session, reads and writes of Delta tables, the code archive."""
