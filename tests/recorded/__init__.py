"""A recorded period: what the pipeline saw of real consumers, and what they noted themselves."""
