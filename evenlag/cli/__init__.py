"""The `evenlag` command, one module per command."""
