"""Monitoring: alerts, freshness, metrics and table health."""
