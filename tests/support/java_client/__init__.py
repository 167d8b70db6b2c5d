"""The Java client: a JVM that answers for it, random groups, and consumers of its own."""
