"""The policy file: settings, how they are read and validated, and what they mean for a group."""
