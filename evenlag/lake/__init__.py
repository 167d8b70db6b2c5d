"""The Delta lake without a JVM: table contracts, locations, reads, and small writes."""
