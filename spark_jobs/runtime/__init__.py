"""What every job runs on: the Spark session, reads and writes of Delta tables, the code archive."""
