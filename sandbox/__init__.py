"""The sandbox: Kafka brokers, a skewed workload, and evidence of what the consumers did."""
