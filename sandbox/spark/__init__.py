"""A Spark standalone cluster, a Spark Connect server, and archives that make JVMs start faster."""
