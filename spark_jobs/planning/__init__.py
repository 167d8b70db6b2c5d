"""Planning batches of groups inside one Arrow call."""
