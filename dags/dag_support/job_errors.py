"""The jobs' errors as Airflow takes them: tried again only where time may help."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def fail_or_try_again() -> Iterator[None]:
    """Let an error that may pass be tried again; make any other one final.

    Raises
    ------
    AirflowFailException
        For what no repeat can help.
    """
    from spark_jobs.errors import FencedPublisherError, JobError

    try:
        yield
    except FencedPublisherError:
        # Another publishing came in between, an approved plan's or a command's: a repeat reads all anew.
        raise
    except JobError as error:
        if error.retriable:
            raise
        raise AirflowFailException(str(error)) from error
