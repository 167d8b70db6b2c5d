"""Tables of the command: their layout on a terminal of any width, and those of one command's answers."""
