"""Convert the errors of a Spark Connect server that is gone, or refuses a session, to one clear line."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from evenlag.errors import LakeError, SparkAuthenticationError, SparkUnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.errors import JobError

# The server has restarted, or a repeat of the job has replaced the session.
_LOST_SESSION: Final = (
    "INVALID_HANDLE.SESSION_CHANGED",
    "INVALID_HANDLE.SESSION_CLOSED",
    "INVALID_HANDLE.SESSION_NOT_FOUND",
    "INVALID_HANDLE.OPERATION_NOT_FOUND",
    "INVALID_HANDLE.OPERATION_ABANDONED",
    "NO_ACTIVE_SESSION",
)
_CANCELED: Final = "OPERATION_CANCELED"
_UNAVAILABLE: Final = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")
_REFUSED: Final = "StatusCode.UNAUTHENTICATED"


@contextmanager
def server_errors(address: str) -> Iterator[None]:
    """Convert errors that concern the server, not the query; also where a table's error has hidden them."""
    import grpc
    from pyspark.errors import PySparkException

    try:
        yield
    except (LakeError, PySparkException, grpc.RpcError) as error:
        converted = _converted(error, address)
        if converted is None:
            raise
        raise converted from error


def _converted(error: BaseException, address: str) -> JobError | None:
    text = _texts(error)
    if _REFUSED in text:
        return SparkAuthenticationError(
            f"the Spark Connect server {address} refuses the token: EVENLAG_SPARK_TOKEN must be that of the "
            "server"
        )
    if any(code in text for code in _UNAVAILABLE):
        return SparkUnreachableError(f"the Spark Connect server {address} does not answer")
    if any(name in text for name in _LOST_SESSION):
        return SparkUnreachableError(
            f"the Spark Connect server {address} has ended this session: it has restarted, or a repeat of "
            "this job runs"
        )
    if _CANCELED in text:
        return SparkUnreachableError(
            f"an operation on the Spark Connect server {address} was interrupted: a repeat of this job runs"
        )
    return None


def _texts(error: BaseException) -> str:
    """Return the messages of an error and of the errors behind it."""
    texts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(texts) < 10:  # noqa: PLR2004  # chains are shorter
        texts.append(f"{current!r} {current}")
        current = current.__cause__ or current.__context__
    return "\n".join(texts)
