"""Reading a Kafka cluster: calls side by side within a budget, answers as Arrow columns.

Everything here runs in the driver and on executors alike, so it needs kafka-python, numpy and pyarrow, and
neither Spark nor pydantic.
"""
