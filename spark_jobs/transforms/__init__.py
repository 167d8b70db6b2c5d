"""Transforms from DataFrame to DataFrame: the definitions of evenlag's numbers. No I/O, no clock."""
