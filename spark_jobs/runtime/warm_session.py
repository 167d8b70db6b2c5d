"""A Spark session that a job keeps over many cycles."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

OpenSession: TypeAlias = "Callable[[], AbstractContextManager[SparkSession]]"


class WarmSession:
    """A session that is kept over the cycles, and replaced when it is lost.

    Parameters
    ----------
    open_session
        Opens a session for a ``with`` block.
    """

    def __init__(self, open_session: OpenSession) -> None:
        self._open_session = open_session
        self._opened: AbstractContextManager[SparkSession] | None = None
        self._spark: SparkSession | None = None

    def get(self) -> SparkSession:
        """Return the session; open one if there is none.

        Returns
        -------
        SparkSession
            The session.
        """
        if self._spark is None:
            opened = self._open_session()
            self._spark, self._opened = opened.__enter__(), opened
        return self._spark

    def drop_if_lost(self, error: Exception) -> bool:
        """Close the session if it does not answer any more.

        Parameters
        ----------
        error
            The error after which it is asked.

        Returns
        -------
        bool
            Whether it was lost; the next :meth:`get` opens another.
        """
        if self._spark is None:
            return False
        try:
            self._spark.range(1).collect()
        except Exception:  # noqa: BLE001  # whatever the client raises without its server
            # The failed close of a dead session changes nothing.
            with contextlib.suppress(Exception):
                self.close(error)
            return True
        return False

    def close(self, error: BaseException | None = None) -> None:
        """Close the session, if there is one.

        Parameters
        ----------
        error
            The error that ends it; None at a normal end.
        """
        opened, self._opened, self._spark = self._opened, None, None
        if opened is not None:
            opened.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
