"""What `evenlag doctor` looks at: small checks by area, each with what it found and what to do about it."""
