"""The work of a task without a JVM: errors as Airflow takes them, records that say what they are about."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def fail_or_try_again(**about: str | None) -> Iterator[None]:
    """Let an error that may pass be tried again; make any other one final.

    Parameters
    ----------
    **about
        What the log's records are about within (``evenlag.logging_setup``). Airflow's own masker is told each
        secret that is read.

    Raises
    ------
    AirflowFailException
        For what no repeat can help.
    """
    from airflow.sdk.log import mask_secret

    from evenlag.errors import FencedPublisherError, JobError
    from evenlag.logging_setup import log_fields
    from evenlag.redaction import tell_secrets

    tell_secrets(mask_secret)
    try:
        with log_fields(**about):
            yield
    except FencedPublisherError:
        # Another publishing came in between, an approved plan's or a command's: a repeat reads all anew.
        raise
    except JobError as error:
        if error.retriable:
            raise
        raise AirflowFailException(str(error)) from error
