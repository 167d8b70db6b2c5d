"""The truth suite: every number that a command shows, against what the recorded lakes hold."""
