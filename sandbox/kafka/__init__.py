"""A Kafka broker as a process, optionally with TLS and the broker plug-in."""
