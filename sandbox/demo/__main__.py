"""Runs the demo with ``python -m sandbox.demo``, as ``evenlag demo`` does."""

import sys

from sandbox.demo.run import main

if __name__ == "__main__":
    sys.exit(main())
