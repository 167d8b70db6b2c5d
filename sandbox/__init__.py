"""A real one-node Kafka broker, a skewed workload on it, and the evidence of what the consumers did."""
