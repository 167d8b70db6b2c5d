"""Compare the output of commands with the content of the lake, with a reader that shares no code with them.

``delta_files`` reads a Delta table with pyarrow only; ``checks`` compares and counts. Nothing here imports
the product, so an error of the product cannot hide itself.
"""
