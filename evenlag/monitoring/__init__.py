"""What a platform team watches: alerts, freshness, metrics and table health."""
