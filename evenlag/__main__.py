"""Entry point of the `evenlag` command; says which extra is missing instead of failing with a traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command."""
    try:
        from evenlag.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        sys.exit(f"error: the command needs {error.name}: pip install 'evenlag[cli]'")
    app()


if __name__ == "__main__":
    main()
