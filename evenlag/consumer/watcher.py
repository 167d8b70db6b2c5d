"""Keeps one consumer's hint cache up to date, by a reader that the consumers of a process share."""

from collections.abc import Callable, Mapping
from typing import Any

from evenlag.consumer.cache import HintCache
from evenlag.consumer.hint_reader import HintReader, join_reader, leave_reader
from evenlag.consumer.watched_group import WatchedGroup

DEFAULT_HINT_TOPIC = "evenlag-hints"
_CHECK_EVERY_S = 15.0
# How long a hint outlives the connection to its topic: it covers a broker restart, not a lost permission.
_FORGET_AFTER_S = 30.0
# Settings that the connection of a reader copies from the consumer. Watchers share it if all are equal.
_SHARED_CONFIG = (
    "bootstrap_servers", "client_dns_lookup", "security_protocol", "ssl_context", "ssl_check_hostname",
    "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "ssl_password", "ssl_ciphers",
    "sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_kerberos_name",
    "sasl_kerberos_service_name", "sasl_kerberos_domain_name", "sasl_oauth_token_provider", "proxy_url",
    "socks5_proxy", "socket_options", "api_version", "reconnect_backoff_ms", "reconnect_backoff_max_ms",
)  # fmt: skip


class HintWatcher:
    """Keeps a cache up to date with its group's partition of the hint topic, committed records only.

    Hint and loads of the group count in that partition only. Compressed batches are skipped. It is in no
    group, creates no topic, and survives the restart of a broker. If the topic cannot be read for half a
    minute, or does not exist, the group continues without a hint, as if it did not use evenlag.

    Watchers of a process with equal settings, principal included, share one thread and one connection. Each
    cache verifies signatures with its own keys.

    Parameters
    ----------
    cache
        The cache that it updates.
    config
        The consumer's configuration; the connection settings are copied.
    topic
        The hint topic's name.
    on_tick
        Called about twice a second on the shared thread, and after each record.
    check_every_s
        Interval between checks that the topic still exists and is the same, in seconds.
    forget_after_s
        How long a hint outlives the connection to its topic, in seconds.
    """

    def __init__(
        self,
        cache: HintCache,
        config: Mapping[str, Any],
        *,
        topic: str = DEFAULT_HINT_TOPIC,
        on_tick: Callable[[], None] | None = None,
        check_every_s: float = _CHECK_EVERY_S,
        forget_after_s: float = _FORGET_AFTER_S,
    ) -> None:
        self.cache = cache
        self.topic = topic
        connection = {name: config[name] for name in _SHARED_CONFIG if name in config}
        self._group = WatchedGroup(cache, (topic, connection, check_every_s), on_tick, forget_after_s)
        self._reader: HintReader | None = None

    @property
    def age_s(self) -> float | None:
        """Seconds since it was last verified that all hints are read; None before the first time."""
        return self._group.age_s if self._group.has_read else None

    def start(self) -> None:
        """Start reading; returns at once."""
        self._reader = join_reader(self._group)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop reading; the last watcher of a connection closes it.

        Parameters
        ----------
        timeout_s
            How long to wait for the shared thread, in seconds.
        """
        if self._reader is not None:
            leave_reader(self._reader, self._group, timeout_s)
