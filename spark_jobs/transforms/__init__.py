"""DataFrame to DataFrame: what the numbers mean, apart from where they come from. No I/O, no clock."""
