"""How evenlag connects to Kafka: addresses of brokers, and the settings that it passes to kafka-python.

A policy is stored in the lake, so only settings of a list may be literals. Whatever may contain a secret is a
reference, and a name that is not known is refused: it may be a misspelt one of a secret.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Settings of kafka-python that contain a secret, or may: the URL of a proxy has a place for a password.
SECRET_KAFKA_SETTINGS: Final = frozenset({"sasl_plain_password", "ssl_password", "socks5_proxy", "proxy_url"})
# Those that may be literals. Each is known to kafka-python's consumer, producer and admin client.
LITERAL_KAFKA_SETTINGS: Final = frozenset(
    {
        "api_version", "bootstrap_timeout_ms", "client_dns_lookup", "connections_max_idle_ms",
        "max_in_flight_requests_per_connection", "metadata_max_age_ms", "metrics_num_samples",
        "metrics_sample_window_ms", "receive_buffer_bytes", "receive_message_max_bytes",
        "reconnect_backoff_max_ms", "reconnect_backoff_ms", "request_timeout_ms", "retry_backoff_ms",
        "sasl_kerberos_domain_name", "sasl_kerberos_name", "sasl_kerberos_service_name", "sasl_mechanism",
        "sasl_plain_username", "security_protocol", "send_buffer_bytes", "ssl_cafile", "ssl_certfile",
        "ssl_check_hostname", "ssl_crlfile", "ssl_keyfile",
    }
)  # fmt: skip
# Settings that are Python objects.
_OBJECTS: Final = frozenset(
    {
        "kafka_client", "metric_reporters", "sasl_oauth_token_provider", "selector", "socket_options",
        "ssl_context",
    }
)  # fmt: skip
# Settings that evenlag itself uses.
_TIMEOUTS: Final = frozenset({"request_timeout_ms", "bootstrap_timeout_ms"})
# Set by evenlag itself, per connection.
_RESERVED: Final = frozenset({"bootstrap_servers", "transactional_id", "group_id", "client_id"})
_MAX_TIMEOUT_MS: Final = 600_000

_HOST: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?"
# As in Kafka's own clients, a protocol before the address is ignored.
_ADDRESS: Final = re.compile(
    rf"(?:[A-Za-z_]+://)?(?:{_HOST}|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\])(?P<port>:[^:]*)?", re.ASCII
)
_MAX_PORT: Final = 65_535
_PORT: Final = re.compile(r":[0-9]{1,5}", re.ASCII)
_SHOWN: Final = 60


def check_server(address: str) -> str:
    """Return a broker's address if it is valid.

    Parameters
    ----------
    address
        The address.

    Raises
    ------
    ValueError
        If it is not valid; the message names the address and the expected form.

    Examples
    --------
    >>> check_server("kafka-1.example.org:9092")
    'kafka-1.example.org:9092'
    """
    told = repr(address) if len(address) <= _SHOWN else f"{address[:_SHOWN]!r}…"
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"{told} is no address of a broker: write host:port")
    port = found["port"]
    if port is not None and not (_PORT.fullmatch(port) and 0 < int(port[1:]) <= _MAX_PORT):
        raise ValueError(f"{told} has no port from 1 to {_MAX_PORT:,}: write host:port")
    return address


def check_kafka_settings(settings: Mapping[str, Any]) -> None:
    """Check the settings that a policy passes to kafka-python.

    Parameters
    ----------
    settings
        Literals and :class:`~evenlag.policy.secrets.SecretRef`, by kafka-python's names.

    Raises
    ------
    ValueError
        If a setting is not known, does not belong in a policy, is out of range, or is a literal and may
        contain a secret. The message names the setting, never its value.
    """
    # pydantic: most commands check an address without it.
    from evenlag.policy.secrets import SecretRef

    for name, value in settings.items():
        if name in _RESERVED:
            raise ValueError(f"{name} is set by evenlag, it does not belong under 'kafka'")
        if name in _OBJECTS:
            raise ValueError(f"{name} takes an object, which a policy file cannot hold")
        known = SECRET_KAFKA_SETTINGS | LITERAL_KAFKA_SETTINGS
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "docs/how-to/secured-cluster.md lists them"
            raise ValueError(f"{name[:_SHOWN]!r} is no setting of a connection; {hint}")
        if name in SECRET_KAFKA_SETTINGS and not isinstance(value, SecretRef):
            raise ValueError(f"{name} is a secret: give it as {{env: NAME}} or {{file: PATH}}")
        is_time = type(value) in (int, float) and 0 < value <= _MAX_TIMEOUT_MS
        if name in _TIMEOUTS and not is_time:
            raise ValueError(f"{name} is a time in milliseconds, above 0, to {_MAX_TIMEOUT_MS:,}")
