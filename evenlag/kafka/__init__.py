"""Reads of a Kafka cluster: groups, members, offsets and topics."""
