"""What a release consists of, and the checks of what it brings along: ``python -m release --help``.

It is no part of the wheel: a release is built from a clean clone.
"""
