"""How evenlag connects to Kafka: addresses of brokers, and the settings that it passes to kafka-python.

A policy is stored in the lake, so only settings of a list may be literals. Whatever may contain a secret is a
reference, and a name that is not known is refused: it may be a misspelt one of a secret.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final

from evenlag.formatting import did_you_mean

# Settings of kafka-python that contain a secret, or may: the URL of a proxy has a place for a password.
SECRET_KAFKA_SETTINGS: Final = frozenset({"sasl_plain_password", "ssl_password", "socks5_proxy", "proxy_url"})
# Values that kafka-python takes; tests compare them with its own. It takes any other protocol for PLAINTEXT.
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# OAUTHBEARER is left out: its tokens come from an object, which a policy file cannot hold.
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "AWS_MSK_IAM")
CHOICES: Final = {
    "security_protocol": SECURITY_PROTOCOLS,
    "sasl_mechanism": SASL_MECHANISMS,
    "client_dns_lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
}
_TEXTS: Final = frozenset(
    {
        "sasl_kerberos_domain_name", "sasl_kerberos_name", "sasl_kerberos_service_name",
        "sasl_plain_username", "ssl_cafile", "ssl_certfile", "ssl_keyfile",
    }
)  # fmt: skip
_TIMES: Final = frozenset(
    {
        "bootstrap_timeout_ms", "connections_max_idle_ms", "metadata_max_age_ms", "metrics_sample_window_ms",
        "reconnect_backoff_max_ms", "reconnect_backoff_ms", "request_timeout_ms", "retry_backoff_ms",
    }
)  # fmt: skip
_COUNTS: Final = frozenset(
    {
        "max_in_flight_requests_per_connection", "metrics_num_samples", "receive_buffer_bytes",
        "receive_message_max_bytes", "send_buffer_bytes",
    }
)  # fmt: skip
# Those that may be literals. Each is known to kafka-python's consumer, producer and admin client.
LITERAL_KAFKA_SETTINGS: Final = frozenset({*CHOICES, *_TEXTS, *_TIMES, *_COUNTS, "ssl_check_hostname"})
# librdkafka's names of those that are needed to connect, with the same values.
LIBRDKAFKA_NAMES: Final = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
# What kafka-python's clients accept, and cannot use: the reason.
UNUSABLE_KAFKA_SETTINGS: Final = {
    "api_version": "is found out from the brokers",
    "ssl_crlfile": "cannot be used: Python's ssl module has no such argument, and kafka-python fails with it",
}
# Settings that are Python objects.
_OBJECTS: Final = frozenset(
    {
        "kafka_client", "metric_reporters", "sasl_oauth_token_provider", "selector", "socket_options",
        "ssl_context",
    }
)  # fmt: skip
# Set by evenlag itself, per connection.
_RESERVED: Final = frozenset({"bootstrap_servers", "transactional_id", "group_id", "client_id"})
# Settings that evenlag itself uses.
_OWN_TIMES: Final = frozenset({"request_timeout_ms", "bootstrap_timeout_ms"})
_MAX_TIMEOUT_MS: Final = 600_000
_MAX_TIME_MS: Final = 2**31 - 1

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

    Examples
    --------
    >>> check_server("kafka-1.example.org:9092")
    'kafka-1.example.org:9092'
    """
    shown = repr(address) if len(address) <= _SHOWN else f"{address[:_SHOWN]!r}…"
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"{shown} is no address of a broker: write host:port")
    port = found["port"]
    if port is not None and not (_PORT.fullmatch(port) and 0 < int(port[1:]) <= _MAX_PORT):
        raise ValueError(f"{shown} has no port from 1 to {_MAX_PORT:,}: write host:port")
    return address


def check_kafka_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings for kafka-python, by its names, if they are valid: literals, references to secrets."""
    # pydantic: most commands check an address without it.
    from evenlag.policy.secrets import SecretRef

    for name, value in settings.items():
        _check_name(name)
        is_reference = isinstance(value, SecretRef)
        if name in SECRET_KAFKA_SETTINGS:
            if not is_reference:
                raise ValueError(f"{name} is a secret: give it as {{env: NAME}} or {{file: PATH}}")
        elif is_reference:
            raise ValueError(
                f"{name} is no secret, so it is no reference: write its value, or set it with the variable "
                f"EVENLAG_CLUSTER__NAME__KAFKA__{name.upper()}"
            )
        else:
            check_kafka_value(name, value)
    _check_protocol(settings)
    return settings


def _check_name(name: str) -> None:
    if name in _RESERVED:
        raise ValueError(f"{name} is set by evenlag, it does not belong under 'kafka'")
    if name in _OBJECTS:
        raise ValueError(f"{name} takes an object, which a policy file cannot hold")
    if name in UNUSABLE_KAFKA_SETTINGS:
        raise ValueError(f"{name} {UNUSABLE_KAFKA_SETTINGS[name]}: remove it")
    known = SECRET_KAFKA_SETTINGS | LITERAL_KAFKA_SETTINGS
    if name not in known:
        hint = did_you_mean(name, sorted(known)) or "; docs/how-to/secured-cluster.md lists them"
        raise ValueError(f"{name[:_SHOWN]!r} is no setting of a connection{hint}")


def check_kafka_value(name: str, value: Any) -> None:
    """Check the value of a setting that may be a literal."""
    # A misplaced secret may be the value: only what is compared with a list of known values is shown.
    if name in CHOICES:
        _check_choice(name, value)
    elif name in _TEXTS:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{name} must be text, and not empty")
    elif name in _TIMES:
        limit = _MAX_TIMEOUT_MS if name in _OWN_TIMES else _MAX_TIME_MS
        if type(value) not in (int, float) or not 0 < value <= limit:
            raise ValueError(f"{name} is a time in milliseconds, above 0, to {limit:,}")
    elif name in _COUNTS:
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be a whole number, above 0")
    elif type(value) is not bool:
        raise ValueError(f"{name} must be true or false; yes, no, on and off are text in YAML 1.2")


def _check_choice(name: str, value: Any) -> None:
    if value not in CHOICES[name]:
        message = f"{name}: {str(value)[:_SHOWN]!r} is none of {', '.join(CHOICES[name])}"
        near = _nearest(str(value), CHOICES[name])
        raise ValueError(f"{message}; did you mean {near!r}?" if near else message)


def _nearest(value: str, choices: tuple[str, ...]) -> str | None:
    """Return the nearest choice without regard to case and separators; the last one that begins with it."""
    plain = re.sub(r"[^A-Z0-9]", "", value.upper()).replace("TLS", "SSL")
    by_plain = {re.sub(r"[^A-Z0-9]", "", choice.upper()): choice for choice in choices}
    longer = [choice for name, choice in by_plain.items() if plain and name.startswith(plain)]
    near = difflib.get_close_matches(plain, [*by_plain], n=1)
    return longer[-1] if longer else by_plain[near[0]] if near else None


def _check_protocol(settings: Mapping[str, Any]) -> None:
    """Refuse settings of TLS and SASL that would be ignored, and SASL without what its mechanism needs."""
    protocol = settings.get("security_protocol")
    if protocol is None:
        unused = sorted(name for name in settings if name.startswith(("sasl_", "ssl_")))
        if unused:
            example = "SASL_SSL" if unused[0].startswith("sasl_") else "SSL"
            raise ValueError(
                f"{unused[0]} needs a security_protocol, e.g. {example}: without one the connection is not "
                "encrypted, and nobody logs in"
            )
    elif protocol.startswith("SASL_"):
        mechanism = settings.get("sasl_mechanism", "")
        by_password = mechanism == "PLAIN" or mechanism.startswith("SCRAM-")
        wanted = ("sasl_mechanism", *(("sasl_plain_username", "sasl_plain_password") if by_password else ()))
        missing = [name for name in wanted if name not in settings]
        if missing:
            raise ValueError(f"security_protocol: {protocol} needs {' and '.join(missing)}")
