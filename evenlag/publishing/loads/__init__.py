"""Loads of partitions, published beside hints: members place partitions by them when they change."""
