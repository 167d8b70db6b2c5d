"""Writing to the hint topic: its settings, its publisher, and changes that are written before any read."""
