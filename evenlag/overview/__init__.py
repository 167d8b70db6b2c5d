"""The overview of all groups, its metrics and its server: they read the lake; only `live` reaches brokers."""
