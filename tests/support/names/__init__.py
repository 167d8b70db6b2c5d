"""Finding the places in the code that print a name without making it safe."""
