"""The steps of the jobs: each reads tables, applies transforms and writes tables."""
