"""Why a connection to a broker fails, and the remedy: one place, for every command and for ``doctor``.

kafka-python tries again until its time is over, and then reports a timeout whatever the cause was. Here one
more connection is made, by its own code, and the error of that is looked up.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from evenlag.errors import KafkaSettingsError
from evenlag.kafka.broker_requests import in_one_line

_Table = tuple[tuple[Callable[["_Seen"], object], str, str], ...]

_TIMEOUT_MS: Final = 5_000
# OpenSSL's codes of a refused certificate (X509_V_ERR_…).
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_HOST: Final = frozenset({62, 64})
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
_ABOUT_CERTIFICATE: Final = re.compile(r"ALERT_.*(CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)")
_ENDED: Final = re.compile(r"socket disconnected|EOF occurred|Errno (32|104)\b|Connection reset")
_TIMED_OUT: Final = re.compile(r"[Tt]imed out|TimedOut|Timeout")
# Errors of connect(), as kafka-python words them ("111 ECONNREFUSED").
_ERRNO: Final = re.compile(r"\b(?P<code>\d+) E[A-Z]+\b|\[Errno (?P<other>\d+)\]")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a connection failed: the cause completes a sentence that begins with the broker's address.

    is_refused: Whether broker and client do not accept each other; otherwise the broker does not answer.
    """

    cause: str
    remedy: str
    is_refused: bool = True


def tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Build the TLS context that kafka-python builds, and name the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(settings.get("ssl_check_hostname", True))
    authority, certificate = settings.get("ssl_cafile"), settings.get("ssl_certfile")
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if settings.get(name):
            _check_readable(name, settings[name])
    if authority:
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError as error:
            raise KafkaSettingsError(
                f"ssl_cafile: {authority} holds no certificate in PEM form", remedy="give the authority's"
            ) from error
    else:
        context.load_default_certs()
    if certificate:
        _load_certificate(context, certificate, settings.get("ssl_keyfile"), settings.get("ssl_password"))
    return context


def connection_failure(server: str, settings: Mapping[str, Any]) -> Failure | None:
    """Connect once to a broker as kafka-python does; return why it failed, None if the broker answers."""
    attempt = _Attempt()
    with closing(NetworkSelector()) as net:
        error = net.run(attempt.run, net, {**settings, "bootstrap_servers": [server]})
    return None if error is None else explain(error, server, settings, attempt)


def explain(
    error: Exception, server: str, settings: Mapping[str, Any], attempt: _Attempt | None = None
) -> Failure:
    """Look up the cause and the remedy of an error, by how far the connection came if that is known."""
    seen = _Seen(error, server, settings, attempt or _Attempt())
    row = next(row for row in (*_REFUSALS, *_SILENCES) if row[0](seen))
    _, cause, remedy = row
    return Failure(cause.format(seen=seen), remedy.format(seen=seen), row in _REFUSALS)


class _Attempt:
    """One connection, and how far it came."""

    def __init__(self) -> None:
        self.has_transport = False
        self.is_initialized = False
        self.mechanisms: list[str] = []
        self.origin: BaseException | None = None

    async def run(self, net: Any, settings: Mapping[str, Any]) -> Exception | None:
        """Return the error of the first step that fails."""
        manager = KafkaConnectionManager(net, **settings)
        build = manager._build_transport  # noqa: SLF001  # kafka-python has no public way to see an error

        async def build_transport(*arguments: Any, **named: Any) -> Any:
            try:
                transport = await build(*arguments, **named)
            except Exception as error:
                # kafka-python raises an error of its own, and raising that again drops this one.
                self.origin = error.__context__
                raise
            self.has_transport = True
            receive = transport._sock_recv  # noqa: SLF001  # as above

            def receive_to_the_end() -> tuple[bytes, Exception | None]:
                # kafka-python drops an answer after which the broker ends the connection at once.
                data, error = receive()
                return data, None if data else error

            transport._sock_recv = receive_to_the_end  # noqa: SLF001  # as above
            return transport

        manager._build_transport = build_transport  # noqa: SLF001  # as above
        try:
            node = manager.cluster.bootstrap_brokers()[0].node_id
            limits = {"pop_on_close": False, "refresh_metadata_on_err": False}
            connection = manager.get_connection(node, timeout_ms=_TIMEOUT_MS, **limits)
            send = connection._send_request  # noqa: SLF001  # as above
            connection._send_request = lambda *request, **named: send(*request, **named).add_callback(  # noqa: SLF001  # as above
                self._note
            )
            # A TLS handshake has no time limit of its own.
            await manager.wait_for(connection.init_future, _TIMEOUT_MS)
            self.is_initialized = True
            await connection.send_request(MetadataRequest(topics=[]), request_timeout_ms=_TIMEOUT_MS)
        except Exception as error:  # noqa: BLE001  # any error is one to explain
            return error
        finally:
            manager.close()
        return None

    def _note(self, response: Any) -> None:
        self.mechanisms = list(getattr(response, "mechanisms", None) or self.mechanisms)


class _Seen:
    """What is known of a failed connection, and names for messages."""

    def __init__(self, error: Exception, server: str, settings: Mapping[str, Any], attempt: _Attempt) -> None:
        self.error, self.settings, self.attempt = error, settings, attempt
        self.text = in_one_line(error)
        # The error of ssl that kafka-python's error was raised for, else that error itself.
        around = (error, attempt.origin, *error.args)
        self.origin = next((each for each in around if isinstance(each, ssl.SSLError)), error)
        self.verify_code = getattr(self.origin, "verify_code", None)
        reasons = (getattr(self.origin, name, None) for name in ("verify_message", "reason"))
        self.reason = next((str(reason) for reason in reasons if reason), "EOF")
        found = _ERRNO.search(str(error))
        self.code = None if found is None else int(found["code"] or found["other"])
        self.host = server.rpartition("://")[2].rpartition(":")[0].strip("[]") or server
        self.proxy = " through the proxy" if {"proxy_url", "socks5_proxy"} & settings.keys() else ""
        self.user = str(settings.get("sasl_plain_username") or "evenlag")
        self.login_error = str(error).rpartition("SaslAuthenticationFailedError: ")[2]
        self.mechanisms = ", ".join(attempt.mechanisms) or "others"
        self.protocol = str(settings.get("security_protocol", "PLAINTEXT"))
        self.has_tls, self.has_sasl = self.protocol.endswith("SSL"), self.protocol.startswith("SASL")
        self.with_tls = "SASL_SSL" if self.has_sasl else "SSL or SASL_SSL"
        self.without_tls = "SASL_PLAINTEXT" if self.has_sasl else "PLAINTEXT or SASL_PLAINTEXT"
        self.with_sasl = "SASL_SSL" if self.has_tls else "SASL_PLAINTEXT"
        self.without_sasl = "SSL" if self.has_tls else "PLAINTEXT"

    def is_kafka(self, name: str) -> bool:
        return any(kind.__name__ == name for kind in type(self.error).__mro__)


_BOOTSTRAP: Final = "correct bootstrap_servers"

# Test, cause, remedy: the first row that matches says what happened. First why the two refuse each other.
_REFUSALS: Final[_Table] = (
    (
        lambda seen: seen.verify_code == _EXPIRED,
        "has a certificate that has expired",
        "renew the broker's certificate",
    ),
    (
        lambda seen: seen.verify_code == _NOT_YET_VALID,
        "has a certificate that is not valid yet",
        "set the clock of this machine",
    ),
    (
        lambda seen: seen.verify_code in _OTHER_HOST,
        "has a certificate that is not for {seen.host}",
        "write a name of the certificate in bootstrap_servers, or issue one for this name",
    ),
    (
        lambda seen: seen.verify_code in _UNKNOWN_AUTHORITY and seen.settings.get("ssl_cafile"),
        "has a certificate that no authority in ssl_cafile ({seen.settings[ssl_cafile]}) signed",
        "put the certificate of its authority there",
    ),
    (
        lambda seen: seen.verify_code in _UNKNOWN_AUTHORITY,
        "has a certificate that no authority of this machine signed",
        "set ssl_cafile to a file with the certificate of its authority",
    ),
    (
        lambda seen: isinstance(seen.origin, ssl.SSLCertVerificationError),
        "has a certificate that is refused: {seen.reason}",
        "correct the broker's certificate",
    ),
    (
        lambda seen: _ABOUT_CERTIFICATE.search(str(seen.origin)) and seen.settings.get("ssl_certfile"),
        "refuses the client's certificate, ssl_certfile ({seen.settings[ssl_certfile]})",
        "give one that has not expired and that an authority of the broker signed",
    ),
    (
        lambda seen: _ABOUT_CERTIFICATE.search(str(seen.origin)),
        "requires a certificate of the client",
        "set ssl_certfile and ssl_keyfile, and ssl_password if the key has one",
    ),
    (
        lambda seen: (
            seen.is_kafka("SaslAuthenticationFailedError") and "sasl_plain_username" in seen.settings
        ),
        "refuses the login of {seen.user!r}: {seen.login_error}",
        "correct sasl_plain_username and sasl_plain_password",
    ),
    (
        lambda seen: seen.is_kafka("SaslAuthenticationFailedError"),
        "refuses the login: {seen.login_error}",
        "correct the credentials of sasl_mechanism {seen.settings[sasl_mechanism]}",
    ),
    (
        lambda seen: seen.is_kafka("UnsupportedSaslMechanismError"),
        "does not accept sasl_mechanism {seen.settings[sasl_mechanism]}, but {seen.mechanisms}",
        "correct sasl_mechanism",
    ),
    (
        lambda seen: seen.is_kafka("IllegalSaslStateError"),
        "has no SASL on this port",
        "set security_protocol to {seen.without_sasl}, or use the port of its SASL listener",
    ),
    (
        lambda seen: seen.attempt.is_initialized and not seen.has_sasl and _ENDED.search(seen.text),
        "requires a login on this port",
        "set security_protocol to {seen.with_sasl}, and sasl_mechanism",
    ),
    (
        lambda seen: not seen.has_tls and seen.is_kafka("KafkaProtocolError"),
        "does not answer in Kafka's protocol without TLS (security_protocol is {seen.protocol})",
        "set security_protocol to {seen.with_tls}, or correct the port",
    ),
)
# Then why the broker does not answer. A load balancer ends a handshake, too, while its broker is down.
_SILENCES: Final[_Table] = (
    (
        lambda seen: (
            seen.has_tls
            and not seen.attempt.has_transport
            and (isinstance(seen.origin, ssl.SSLError) or _ENDED.search(seen.text))
        ),
        "ends the TLS handshake ({seen.reason})",
        "without TLS on this port, set security_protocol to {seen.without_tls}; else see the broker's log",
    ),
    (
        lambda seen: seen.attempt.has_transport and _ENDED.search(seen.text),
        "ends the connection before it answers (security_protocol is {seen.protocol})",
        "with TLS on this port, set security_protocol to {seen.with_tls}; else see the broker's log",
    ),
    (
        lambda seen: "DNS" in seen.text or isinstance(seen.error, socket.gaierror),
        "is not found: the name {seen.host} is not known here",
        _BOOTSTRAP,
    ),
    (
        lambda seen: seen.code == errno.ECONNREFUSED,
        "refuses connections{seen.proxy}: nothing listens on this port",
        _BOOTSTRAP + ", or start the broker",
    ),
    (
        lambda seen: _TIMED_OUT.search(seen.text) and seen.attempt.has_transport,
        "takes connections{seen.proxy} and does not answer",
        _BOOTSTRAP + " or security_protocol, or see the broker's log",
    ),
    (
        lambda seen: _TIMED_OUT.search(seen.text) or seen.code == errno.ETIMEDOUT,
        "does not answer{seen.proxy}",
        _BOOTSTRAP + ", or open the way to it",
    ),
    (lambda _: True, "cannot be used{seen.proxy}: {seen.text}", _BOOTSTRAP + " or the broker"),
)


def _check_readable(name: str, path: str) -> None:
    try:
        with open(path, "rb"):  # noqa: PTH123  # as ssl opens it
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise KafkaSettingsError(
            f"{name}: {path} cannot be read: {reason}", remedy="correct the path, or its permissions"
        ) from error


def _load_certificate(
    context: ssl.SSLContext, certificate: str, key: str | None, password: str | None
) -> None:
    name, path = ("ssl_keyfile", key) if key else ("ssl_certfile", certificate)
    try:
        # Never None: OpenSSL would ask for the password on the terminal.
        context.load_cert_chain(certificate, key, password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise KafkaSettingsError(
                f"{name}: {path} is not the key of ssl_certfile ({certificate})", remedy="give its own key"
            ) from error
        with open(path, "rb") as file:  # noqa: PTH123  # as above
            text = file.read()
        if b"PRIVATE KEY-----" not in text:
            cause, remedy = "holds no private key in PEM form", "set ssl_keyfile to a file that does"
        elif b"ENCRYPTED" not in text:
            cause, remedy = f"cannot be used ({error.reason})", "give certificate and key in PEM form"
        elif password:
            cause, remedy = "is encrypted with another password", "correct ssl_password"
        else:
            cause, remedy = "is encrypted", "set ssl_password"
        raise KafkaSettingsError(f"{name}: {path} {cause}", remedy=remedy) from error
