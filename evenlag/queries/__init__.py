"""Answers from the lake that the command and the report share."""
