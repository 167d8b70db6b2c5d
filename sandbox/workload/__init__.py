"""Consumers and a producer as processes, their journals, and the evidence of what they did."""
