"""A real Kafka broker, with TLS and the brokers' plug-in where they are asked for."""
