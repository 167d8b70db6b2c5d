"""The `evenlag` command: run a cycle, look at what is there, show what it does."""
