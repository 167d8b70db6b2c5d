"""Helpers of the tests of evenlag's temporary member."""
