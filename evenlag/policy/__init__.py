"""The policy file: its settings, how they are read and validated, and the settings in effect for a group."""
