"""Placing by load: the plain implementation, random groups, and vectors for all implementations."""
