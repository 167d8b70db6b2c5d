"""Answers from the audit's tables, without a JVM: who held what, what changed and why, what was wrong."""
