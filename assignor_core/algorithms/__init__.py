"""Algorithms that the assignors share: classes of partitions, flows, levels, the search for even load."""
