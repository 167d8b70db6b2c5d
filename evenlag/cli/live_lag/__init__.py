"""`evenlag lag` of a running cluster: what it reads, and how it shows it."""
