"""The data pipeline: Spark jobs that read Kafka and the lake, transform DataFrames and write Delta tables."""
