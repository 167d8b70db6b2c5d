"""Checks of `evenlag doctor`, by area. Each check reports findings, and a remedy for each problem."""
