"""Probes of TCP ports and TLS certificates."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from evenlag.doctor.model import failed, ok, skipped, warning
from evenlag.kafka.connection_failures import explain, tls_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.doctor.model import Finding

PROBE_TIMEOUT_S: Final = 3.0
SOON_DAYS: Final = 30
_DAY_S: Final = 86_400


def split_server(server: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, ``[v6]:port`` or ``NAME://host:port``."""
    host, _, port = server.rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def why_unreachable(server: str, timeout_s: float = PROBE_TIMEOUT_S) -> str | None:
    """Open a TCP connection to a server and close it.

    Returns why the connection failed; None if it succeeded.
    server: Address, as for :func:`split_server`.
    """
    try:
        with socket.create_connection(split_server(server), timeout=timeout_s):
            return None
    except ValueError:
        return "it has no port: write host:port"
    except socket.gaierror:
        return "its name is not known here"
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return error.strerror or str(error)


def look_at_certificate(server: str, kafka: Mapping[str, Any], password: str | None) -> Finding:
    """Open a TLS connection as kafka-python would, and check when the broker's certificate expires.

    Returns verdict on the certificate; skipped if the server is unreachable.
    server: Address, as for :func:`split_server`.
    password: Password of the client key; None if it has none.
    """
    settings = {**kafka, "ssl_password": password}
    context = tls_context(settings)
    host, port = split_server(server)
    try:
        with (
            socket.create_connection((host, port), timeout=PROBE_TIMEOUT_S) as raw,
            context.wrap_socket(raw, server_hostname=host) as secure,
        ):
            return expiry_finding(server, secure.getpeercert(), datetime.now(UTC))
    except (ssl.SSLError, ConnectionResetError) as error:
        failure = explain(error, server, settings)
        return failed(f"{server} {failure.cause}", failure.remedy)
    except OSError as error:
        return skipped(f"{server}: {error.strerror or error}: see brokers.answer")


def expiry_finding(server: str, certificate: Mapping[str, Any] | None, now: datetime) -> Finding:
    """Check when a certificate expires.

    Returns failed if it is expired, a warning if it expires within 30 days.
    certificate: Certificate as returned by ``SSLSocket.getpeercert``.
    """
    until = (certificate or {}).get("notAfter")
    if until is None:
        return warning(f"{server}: its certificate does not say how long it lasts", "look at it with openssl")
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(until)), UTC)
    days = (ends - now).total_seconds() / _DAY_S
    message = f"{server}: its certificate lasts until {ends:%Y-%m-%d} ({days:.0f} days)"
    if days < 0:
        return failed(message, "renew it: clients refuse it by now")
    return warning(message, "renew it") if days < SOON_DAYS else ok(message)
