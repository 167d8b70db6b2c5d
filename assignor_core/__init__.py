"""Partition assignment for Kafka consumer groups: pure, on arrays, with no dependency but numpy."""
