"""Entry point of the `evenlag` command. Reports a missing extra without a traceback."""

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
