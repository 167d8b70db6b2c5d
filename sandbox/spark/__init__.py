"""A Spark standalone cluster, and an archive that makes its JVMs start faster."""
