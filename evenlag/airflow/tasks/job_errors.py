"""Error handling and logging of tasks without a JVM."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlag.airflow.compat import AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def fail_or_try_again(**about: str | None) -> Iterator[None]:
    """Let Airflow retry retriable errors, and fail the task without retries for all others.

    Registers secrets with Airflow's masker.

    **about: Context fields of log records in this scope (:func:`evenlag.logging_setup.log_fields`).
    """
    from airflow.sdk.log import mask_secret

    from evenlag.errors import FencedPublisherError, JobError
    from evenlag.logging_setup import log_fields
    from evenlag.redaction import tell_secrets
    from evenlag.safe_text import printable_lines

    tell_secrets(mask_secret)
    try:
        with log_fields(**about):
            yield
    except FencedPublisherError:
        # Another publisher was active, for an approved plan or a command: a retry reads the current state.
        raise
    except JobError as error:
        if error.retriable:
            raise
        raise AirflowFailException(printable_lines(str(error))) from error
