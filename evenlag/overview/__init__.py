"""The overview of all groups, its metrics and its server: they read the lake and reach no broker."""
