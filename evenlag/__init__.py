"""Everything of evenlag that needs no JVM: policy, lake, Kafka, publishing, audit, report and the command.

The Python API is `open`, `Lake`, `assign` and ``__version__``; docs/reference/python.md describes it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenlag.api import Lake, assign
    from evenlag.api import open_lake as open  # noqa: A004  # as in tarfile.open

    __version__: str

__all__ = ["Lake", "__version__", "assign", "open"]

if not TYPE_CHECKING:
    # A consumer imports neither the API nor what it needs.
    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("evenlag")
        if name not in __all__:
            raise AttributeError(f"module 'evenlag' has no attribute {name!r}")
        from evenlag import api

        return getattr(api, {"open": "open_lake"}.get(name, name))
