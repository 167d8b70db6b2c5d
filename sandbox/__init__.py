"""The sandbox: a one-node Kafka broker, a skewed workload, and evidence of what the consumers did."""
