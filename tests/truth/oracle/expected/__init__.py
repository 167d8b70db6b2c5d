"""Expected output of each command, computed from the lake's Parquet files."""
