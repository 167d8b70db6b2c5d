"""Faults at random on a real group of processes, and what their logs prove."""
