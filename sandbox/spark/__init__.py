"""A real Spark standalone cluster, and what makes its JVMs start faster."""
