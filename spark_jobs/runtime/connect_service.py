"""The inside of a Spark Connect server of ours: its port, its sessions, and the caches that they left."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.runtime.classic_session import java_objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"


class ConnectService:
    """The Connect service that runs in a session's JVM.

    Parameters
    ----------
    spark
        A classic session whose JVM has the plug-in of Spark Connect.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm, self._session = java_objects(spark)
        self._service: Any = getattr(getattr(jvm, _SERVICE), "MODULE$")
        self._seen: set[str] = set()

    def port(self) -> int:
        """Return the port that the service listens on."""
        return int(self._service.localPort())

    def set_for_sessions(self, key: str, value: str) -> None:
        """Set a value that later sessions of clients have from their start.

        Parameters
        ----------
        key, value
            Name and value of the setting.
        """
        self._session.sharedState().conf().set(key, value)

    def live_sessions(self) -> set[str]:
        """Return the ids, on the server's side, of the sessions that are open."""
        found = self._service.sessionManager().listActiveSessions()
        return {str(found.apply(number).serverSessionId()) for number in range(found.length())}

    def drop_orphaned_caches(self) -> int:
        """Uncache the DataFrames that sessions have cached which have ended since; called each second.

        Spark keeps them: the end of a session uncaches nothing, and a client that was killed cannot. What
        Delta caches for itself, as VACUUM does, belongs to a session of its own that no client has: it stays.

        Returns
        -------
        int
            How many were uncached.
        """
        manager = self._session.sharedState().cacheManager()
        if manager.isEmpty():
            self._seen = self.live_sessions()
            return 0
        # The list is private, and Spark has no public way from a cached DataFrame to its session.
        field = manager.getClass().getDeclaredField("cachedData")
        field.setAccessible(True)
        cached = field.get(manager)
        # First what is cached, then who lives: a session that starts in between has cached none of these.
        owned = [(_owner(entry), entry) for entry in (cached.apply(n) for n in range(cached.length()))]
        live = self.live_sessions()
        ended = self._seen - live
        orphans = [entry for owner, entry in owned if owner in ended]
        for entry in orphans:
            manager.uncacheQuery(self._session, entry.plan(), False, False)
        if orphans:
            _LOG.info("uncached %d DataFrames of sessions that have ended", len(orphans))
        # Sessions that have ended and left nothing are forgotten.
        self._seen = live | (ended & {owner for owner, _ in owned})
        return len(orphans)


def _owner(entry: Any) -> str:
    """Return the id of the session that planned a cached DataFrame."""
    return str(entry.cachedRepresentation().cacheBuilder().cachedPlan().session().sessionUUID())
