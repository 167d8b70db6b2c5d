"""Approved plans become hints: gates, approvals, the hint topic and its controls."""
