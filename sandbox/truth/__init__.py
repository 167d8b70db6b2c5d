"""Compare what the commands show with what the lake holds, by a reader that shares no code with them.

:mod:`sandbox.truth.delta_files` reads a Delta table with pyarrow alone, :mod:`sandbox.truth.checks` compares
and counts. Nothing here imports the product: an error of the product cannot hide itself.
"""
