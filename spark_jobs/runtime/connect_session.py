"""A session on a Spark Connect server: this process starts no JVM.

A job's session has an id that its repeat has too. The repeat interrupts what is left of the earlier attempt,
waits until it has ended, and starts an empty session under the same id: an earlier attempt that still runs
cannot continue, because the server refuses its requests (``INVALID_HANDLE.SESSION_CHANGED``). Two that start
together would share the session, so each claims it by a view that only one can create; the other ends.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import (
    JobError,
    LakeError,
    SparkAuthenticationError,
    SparkServerError,
    SparkUnreachableError,
    UsageError,
)
from evenlag.logging_setup import named_logger
from evenlag.redaction import remember_secret
from evenlag.spark_connect import TOKEN_VARIABLE
from spark_jobs.runtime.code_archive import build_archive, code_hash
from spark_jobs.runtime.session_conf import LARGE_LOCAL_CONF, LOCAL_CONF, SERVER_CODE_KEY, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOG = named_logger(__name__)

# By this variable PySpark's functions know that columns are not Java objects.
_MODE_VARIABLE: Final = "SPARK_CONNECT_MODE_ENABLED"
_USER: Final = "evenlag"
_NAMESPACE: Final = uuid.UUID("5d6c1a0e-5f6d-4a53-9a3a-6f2f5f0d7c11")
_TIME_ZONE_KEY: Final = "spark.sql.session.timeZone"
_DELTA_EXTENSION: Final = "DeltaSparkSessionExtension"

# A dead server: PySpark's own policy retries for ten minutes, this one for about 20 s.
_RETRIES: Final[dict[str, Any]] = {
    "max_retries": 12,
    "initial_backoff": 50,
    "max_backoff": 3_000,
    "backoff_multiplier": 2.0,
    "jitter": 100,
    "max_server_retry_delay": 10_000,
}
_CONNECT_TIMEOUT_S: Final = 20.0
# A health check is repeated by whoever asks for it.
_CHECK_TIMEOUT_S: Final = 5.0
# How long an interrupted operation of an earlier attempt may take to end.
_INTERRUPT_TIMEOUT_S: Final = 120.0
# A server of ours closes a session without requests after some minutes: a job may wait for Kafka for longer.
_KEEP_ALIVE_S: Final = 60.0
# Ids that the server refuses because it closed them itself: try as many further ids.
_MAX_CLOSED_IDS: Final = 50
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
# A session's catalog creates a view once, whatever comes at the same time.
_CLAIM: Final = "CREATE TEMPORARY VIEW evenlag_claim AS SELECT 1"
_CLAIMED: Final = "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS"
_UNAVAILABLE: Final = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")
_REFUSED: Final = "StatusCode.UNAUTHENTICATED"


@contextmanager
def connect(
    url: str,
    *,
    is_large: bool = False,
    job_identity: str | None = None,
    wait_s: float = _CONNECT_TIMEOUT_S,
) -> Iterator[SparkSession]:
    """Open a session on a server, and release it after the block.

    url: ``sc://host:port``, with parameters as Spark documents them.
    job_identity: The same text for a job and its repeat; None: a session of its own.
    wait_s: How long to wait for a server that does not answer, e.g. because it is just starting.
    """
    server = _Server(url)
    server.await_answer(wait_s)
    os.environ[_MODE_VARIABLE] = "1"
    try:
        with server_errors(server.address):
            spark = (
                server.open_session(str(uuid.uuid4())) if job_identity is None else server.claim(job_identity)
            )
            is_over, is_released = threading.Event(), job_identity is None
            try:
                _prepare(spark, server.address, is_large=is_large)
                threading.Thread(target=_keep_alive, args=(spark, is_over), daemon=True).start()
                yield spark
                # After an error it may be that of a repeat by now: the next repeat or the server releases it.
                is_released = True
            finally:
                is_over.set()
                if is_released:
                    server.release_session()
                spark.stop()
    finally:
        os.environ.pop(_MODE_VARIABLE, None)
        server.close()


def check_server(url: str) -> None:
    """Check that a server answers a query and runs the code of this process."""
    with connect(url, wait_s=_CHECK_TIMEOUT_S) as spark:
        spark.sql("SELECT 1").collect()


class _Server:
    """A server and a channel to it, for the requests that PySpark's sessions do not offer."""

    def __init__(self, url: str) -> None:
        try:
            from pyspark.sql.connect import proto
            from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub
        except ImportError as error:
            raise JobError(f"Spark Connect needs pip install 'evenlag[spark]': {error}") from error
        # It logs each error with its stack trace; evenlag reports errors itself.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
        self._builder = _channel_builder(url)
        self.address = str(self._builder.endpoint)
        self._channel = self._builder.toChannel()
        stub: Any = SparkConnectServiceStub
        self._stub, self._messages = stub(self._channel), proto
        self._session = ("", "")

    def await_answer(self, timeout_s: float) -> None:
        """Wait until the server answers: each request would be retried for as long by itself."""
        import grpc

        try:
            grpc.channel_ready_future(self._channel).result(timeout_s)
        except grpc.FutureTimeoutError as error:
            self.close()
            raise SparkUnreachableError(f"the Spark Connect server {self.address} does not answer") from error

    def claim(self, job_identity: str) -> SparkSession:
        """Open the session of a job for this process alone; of two at once the first has it."""
        from pyspark.errors import AnalysisException

        spark = self.open_session(self.take_over(job_identity))
        try:
            spark.sql(_CLAIM)
        except AnalysisException as error:
            spark.stop()
            if error.getCondition() != _CLAIMED:
                raise
            raise SparkUnreachableError(
                f"another attempt of this job has started at the same time on {self.address}: it runs"
            ) from error
        return spark

    def take_over(self, job_identity: str) -> str:
        """Return the session id of a job, after the end of what an earlier attempt left running."""
        import grpc

        for number in range(_MAX_CLOSED_IDS):
            session_id = str(uuid.uuid5(_NAMESPACE, f"{number}\n{job_identity}"))
            with server_errors(self.address):
                try:
                    self._end_operations(session_id)
                    self._release(session_id)
                except grpc.RpcError as error:
                    # The server has closed that session itself, e.g. because it was idle for long.
                    if "INVALID_HANDLE.SESSION_CLOSED" not in str(error):
                        raise
                else:
                    return session_id
        # So many sessions of this job have ended by themselves: none of them runs.
        return str(uuid.uuid4())

    def _end_operations(self, session_id: str) -> None:
        kind = self._messages.InterruptRequest
        request = self._request(kind, session_id, interrupt_type=kind.INTERRUPT_TYPE_ALL)
        found = self._stub.Interrupt(request, timeout=_CONNECT_TIMEOUT_S, wait_for_ready=True, **self._more())
        for operation_id in found.interrupted_ids:
            _LOG.warning("an earlier attempt of this job was still running on %s: interrupted", self.address)
            self._await_end(session_id, operation_id)

    def _await_end(self, session_id: str, operation_id: str) -> None:
        """Wait until an interrupted operation has ended: the server then ends its stream of responses."""
        import grpc

        request = self._request(self._messages.ReattachExecuteRequest, session_id, operation_id=operation_id)
        with suppress(grpc.RpcError):
            for _ in self._stub.ReattachExecute(request, timeout=_INTERRUPT_TIMEOUT_S, **self._more()):
                pass

    def open_session(self, session_id: str) -> SparkSession:
        """Open the session under an id."""
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        self._builder.set(self._builder.PARAM_SESSION_ID, session_id)
        session: Any = RemoteSession.builder.channelBuilder(self._builder).create()
        session.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
        # Released by `release_session`, so that the id stays usable.
        session.release_session_on_close = False
        # The first request: a server that is just starting is waited for.
        self._session = (session_id, self._ask(session_id, wait_for_ready=True))
        opened: SparkSession = session
        return opened

    def release_session(self) -> None:
        """Release the session on the server; a server that does not answer must not hide an earlier error."""
        import grpc

        session_id, on_server = self._session
        with suppress(grpc.RpcError):
            # A repeat of the job may have replaced it by a session with the same id: that is not ours to end.
            self._ask(session_id, on_server=on_server)
            self._release(session_id)

    def _ask(self, session_id: str, *, on_server: str | None = None, wait_for_ready: bool = False) -> str:
        """Return the id that the server has given to a session; an error if it is not ``on_server``."""
        kind = self._messages.ConfigRequest
        get = kind.Operation(get=kind.Get(keys=[_TIME_ZONE_KEY]))
        request = self._request(kind, session_id, operation=get)
        if on_server is not None:
            request.client_observed_server_side_session_id = on_server
        found = self._stub.Config(
            request, timeout=_CONNECT_TIMEOUT_S, wait_for_ready=wait_for_ready, **self._more()
        )
        return str(found.server_side_session_id)

    def _release(self, session_id: str) -> None:
        request = self._request(self._messages.ReleaseSessionRequest, session_id, allow_reconnect=True)
        self._stub.ReleaseSession(request, timeout=_CONNECT_TIMEOUT_S, **self._more())

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _request(self, kind: Any, session_id: str, **fields: Any) -> Any:
        user = self._messages.UserContext(user_id=self._builder.userId, user_name=self._builder.userId)
        client = self._builder.userAgent
        return kind(session_id=session_id, user_context=user, client_type=client, **fields)

    def _more(self) -> dict[str, Any]:
        return {"metadata": self._builder.metadata()}


def _channel_builder(url: str) -> Any:
    """Return PySpark's description of an address, with evenlag's names in it."""
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    token = os.environ.get(TOKEN_VARIABLE)
    try:
        builder = DefaultChannelBuilder(url)
        if token and builder.token is None:
            builder.set(builder.PARAM_TOKEN, token)
        if builder.token is not None:
            remember_secret(builder.token)
        if builder.token is not None and not builder.use_ssl and builder.host == "127.0.0.1":
            # PySpark sends a token without TLS to this name only.
            more = dict(builder._params)  # noqa: SLF001  # no public method lists the parameters
            builder = DefaultChannelBuilder(f"sc://localhost:{builder.endpoint.rpartition(':')[2]}")
            for name, value in more.items():
                builder.set(name, value)
    except (PySparkException, ValueError) as error:
        # The address itself may hold a token: it is not repeated.
        raise UsageError(
            "EVENLAG_SPARK_REMOTE is not the address of a Spark Connect server: write sc://HOST:PORT, with "
            "parameters such as sc://HOST:PORT/;use_ssl=true"
        ) from error
    if builder.userId is None:
        builder.set(builder.PARAM_USER_ID, _USER)
    if builder.PARAM_USER_AGENT not in builder._params:  # noqa: SLF001  # no public method lists the parameters
        builder.set(builder.PARAM_USER_AGENT, _USER)
    return builder


def _prepare(spark: SparkSession, address: str, *, is_large: bool) -> None:
    """Check what the server is, give it the code if it is not ours, and set the session's settings."""
    server_code = spark.conf.get(SERVER_CODE_KEY, None)
    is_ours = server_code is not None
    if is_ours and server_code != code_hash():
        raise SparkServerError(
            f"the Spark Connect server {address} runs other code of evenlag than this process: "
            "install the same version on both sides and restart the server"
        )
    if not is_ours:
        _prepare_foreign(spark, address)
    # A server of ours has the settings for small inputs already.
    if (is_large or not is_ours) and is_local(str(spark.conf.get("spark.master", ""))):
        for key, value in (LARGE_LOCAL_CONF if is_large else LOCAL_CONF).items():
            spark.conf.set(key, value)


def _prepare_foreign(spark: SparkSession, address: str) -> None:
    if _DELTA_EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")):
        raise SparkServerError(
            f"the Spark Connect server {address} has no Delta: start python -m spark_jobs.connect_server, or "
            "add Delta's jars, extension and catalog to that server"
        )
    spark.conf.set(_TIME_ZONE_KEY, "UTC")
    with tempfile.TemporaryDirectory(prefix="evenlag-code-") as folder:
        spark.addArtifacts(str(build_archive(Path(folder))), pyfile=True)


def _keep_alive(spark: SparkSession, is_over: threading.Event) -> None:
    while not is_over.wait(_KEEP_ALIVE_S):
        # The job reports a server that does not answer.
        with suppress(Exception):
            spark.conf.get(_TIME_ZONE_KEY)


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
