"""What each command should show of a lake, computed from its Parquet files."""
