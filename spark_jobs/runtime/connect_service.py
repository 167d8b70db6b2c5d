"""The inside of a Spark Connect server of ours: its port, its sessions, and the caches that they left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from evenlag.logging_setup import named_logger
from spark_jobs.runtime.classic_session import java_objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = named_logger(__name__)
_SESSION_ID: Final = re.compile(r'session_id: "([0-9a-f-]{36})"')
_SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"


class ConnectService:
    """The Connect service that runs in a session's JVM.

    spark: A classic session whose JVM has the plug-in of Spark Connect.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm, self._session = java_objects(spark)
        self._service: Any = getattr(getattr(jvm, _SERVICE), "MODULE$")

    def port(self) -> int:
        """Return the port that the service listens on."""
        return int(self._service.localPort())

    def set_for_sessions(self, key: str, value: str) -> None:
        """Set a value that later sessions of clients have from their start."""
        self._session.sharedState().conf().set(key, value)

    def live_sessions(self) -> set[str]:
        """Return the ids, on the clients' side, of the sessions that are open."""
        found = self._service.sessionManager().listActiveSessions()
        return {str(found.apply(number).sessionId()) for number in range(found.length())}

    def drop_orphaned_caches(self) -> int:
        """Uncache the DataFrames that sessions have cached which have ended since.

        Spark keeps them: the end of a session uncaches nothing, and a client that was killed cannot.
        """
        manager = self._session.sharedState().cacheManager()
        if manager.isEmpty():
            return 0
        # The list is private, and Spark has no public way from a cached DataFrame to its session.
        field = manager.getClass().getDeclaredField("cachedData")
        field.setAccessible(True)
        cached = field.get(manager)
        # First what is cached, then who lives: a session that starts in between has cached none of these.
        owned = [(_owner(entry), entry) for entry in (cached.apply(n) for n in range(cached.length()))]
        live = self.live_sessions()
        orphans = [entry for owner, entry in owned if owner is not None and owner not in live]
        for entry in orphans:
            manager.uncacheQuery(self._session, entry.plan(), False, False)
        if orphans:
            _LOG.info("uncached %d DataFrames of sessions that have ended", len(orphans))
        return len(orphans)


def _owner(entry: Any) -> str | None:
    """Return the id, on the client's side, of the session that computed a cached DataFrame; None if unknown.

    The plan shows a clone of the session, with an id of its own. But Spark Connect makes the request the call
    site of everything that an operation creates, and a request begins with the id of its session.
    """
    builder = entry.cachedRepresentation().cacheBuilder()
    if not builder.isCachedColumnBuffersLoaded():
        return None
    found = _SESSION_ID.search(str(builder.cachedColumnBuffers().toString()))
    return None if found is None else found[1]
