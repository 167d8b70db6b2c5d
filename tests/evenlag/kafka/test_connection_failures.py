"""Every cause of a failed connection is one line with its remedy: on a real broker, as its user sees it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import KafkaSettingsError
from evenlag.kafka.connection_failures import connection_failure, tls_context
from tests.support.secured_broker import PASSWORD

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.command import Evenlag
    from tests.support.secured_broker import SecuredBroker

pytestmark = pytest.mark.broker

TLS = {"security_protocol": "SSL", "ssl_cafile": "ca.pem"}
SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "evenlag",
    "sasl_plain_password": PASSWORD,
}
BOTH = {**SASL, **TLS, "security_protocol": "SASL_SSL"}
PLAIN: dict[str, str] = {}


def in_folder(settings: dict[str, str], folder: Path) -> dict[str, Any]:
    """Return settings whose files are in the broker's folder."""
    return {
        name: str(folder / value) if name in {"ssl_cafile", "ssl_certfile", "ssl_keyfile"} else value
        for name, value in settings.items()
    }


@pytest.mark.parametrize(
    ("listener", "settings", "cause", "remedy"),
    [
        ("TLS", TLS, None, None),
        ("SASL", SASL, None, None),
        ("SASL_SSL", BOTH, None, None),
        ("MTLS", {**TLS, "ssl_certfile": "client.pem"}, None, None),
        ("MTLS", {**TLS, "ssl_certfile": "locked.pem", "ssl_password": PASSWORD}, None, None),
        ("TLS", {**TLS, "ssl_cafile": "other-ca.pem"}, "no authority in ssl_cafile (.*/other-ca.pem)", "put"),
        ("TLS", {"security_protocol": "SSL"}, "no authority of this machine", "set ssl_cafile"),
        ("EXPIRED", TLS, "has expired", "renew"),
        ("ELSEWHERE", TLS, "is not for localhost", "bootstrap_servers"),
        ("MTLS", TLS, "requires a certificate of the client", "set ssl_certfile and ssl_keyfile"),
        (
            "MTLS",
            {**TLS, "ssl_certfile": "stranger.pem"},
            "refuses the client's certificate, ssl_certfile (.*/stranger.pem)",
            "signed",
        ),
        ("TLS", PLAIN, "without TLS (security_protocol is PLAINTEXT)", "to SSL or SASL_SSL"),
        ("SASL_SSL", SASL, "without TLS (security_protocol is SASL_PLAINTEXT)", "to SASL_SSL"),
        ("PLAINTEXT", TLS, "ends the TLS handshake", "to PLAINTEXT or SASL_PLAINTEXT"),
        ("SASL", BOTH, "ends the TLS handshake", "to SASL_PLAINTEXT"),
        ("SASL", PLAIN, "requires a login", "to SASL_PLAINTEXT, and sasl_mechanism"),
        ("SASL_SSL", TLS, "requires a login", "to SASL_SSL, and sasl_mechanism"),
        ("PLAINTEXT", SASL, "has no SASL on this port", "to PLAINTEXT"),
        ("TLS", BOTH, "has no SASL on this port", "to SSL"),
        ("SASL", {**SASL, "sasl_mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512, but PLAIN", "sasl_mechanism"),
        (
            "SASL_SSL",
            {**BOTH, "sasl_plain_password": "wrong"},
            "login of 'evenlag': Authentication failed",
            "sasl_plain_password",
        ),
        ("PLAINTEXT", {"proxy_url": "socks5://127.0.0.1:1"}, "refuses connections through the proxy", "port"),
        ("127.0.0.1:1", PLAIN, "refuses connections: nothing listens", "bootstrap_servers"),
        ("no-such-host.invalid:9092", PLAIN, "no-such-host.invalid is not known", "bootstrap_servers"),
    ],
)
def test_a_cause_is_told_with_its_remedy(
    secured: SecuredBroker, listener: str, settings: dict[str, str], cause: str | None, remedy: str | None
) -> None:
    server = secured.addresses.get(listener, listener)
    failure = connection_failure(server, in_folder(settings, secured.folder))
    if cause is None or remedy is None:
        assert failure is None
        return
    assert failure is not None
    pattern = re.escape(cause).replace(r"\.\*", ".*")
    assert re.search(pattern, failure.cause), failure
    assert remedy in failure.remedy or remedy in failure.cause, failure
    assert "\n" not in failure.cause + failure.remedy
    assert PASSWORD not in failure.cause + failure.remedy


@pytest.mark.parametrize("settings", [PLAIN, TLS])
def test_a_port_that_says_nothing_does_not_answer(
    secured: SecuredBroker, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenlag.kafka.connection_failures._TIMEOUT_MS", 300)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        failure = connection_failure(server, in_folder(settings, secured.folder))
    assert failure is not None
    assert "not answer" in failure.cause
    assert not failure.is_refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl_cafile": "nope.pem"}, "ssl_cafile: .*/nope.pem cannot be read: No such file"),
        ({"ssl_cafile": "."}, "ssl_cafile: .* cannot be read: Is a directory"),
        ({"ssl_cafile": "node/server.properties"}, "ssl_cafile: .* holds no certificate in PEM form"),
        ({"ssl_certfile": "nope.pem"}, "ssl_certfile: .*/nope.pem cannot be read"),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "nope.pem"},
            "ssl_keyfile: .*/nope.pem cannot be read",
        ),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "stranger.pem"},
            "ssl_keyfile: .* not the key of ssl_cert",
        ),
        (
            {"ssl_certfile": "ca.pem"},
            "ssl_certfile: .*/ca.pem holds no private key in PEM form: set ssl_keyfile",
        ),
        ({"ssl_certfile": "locked.pem"}, "ssl_certfile: .*/locked.pem is encrypted: set ssl_password"),
        ({"ssl_certfile": "locked.pem", "ssl_password": "x"}, "another password: correct ssl_password"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_setting(
    secured: SecuredBroker, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(KafkaSettingsError, match=message) as caught:
        tls_context(in_folder(settings, secured.folder))
    assert caught.value.exit_code == 2
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("change", "cause", "remedy"),
    [
        (
            {"ssl_cafile": "other-ca.pem"},
            "no authority in ssl_cafile",
            "put the certificate of its authority",
        ),
        ({"ssl_cafile": "nope.pem"}, "nope.pem cannot be read", "correct the path, or its permissions"),
        (
            {"sasl_plain_password": "wrong"},
            "refuses the login of 'evenlag'",
            "correct sasl_plain_username and",
        ),
    ],
)
def test_the_doctor_tells_the_same_cause_and_remedy(
    evenlag: Evenlag, secured: SecuredBroker, tmp_path: Path, change: dict[str, str], cause: str, remedy: str
) -> None:
    settings = in_folder({**BOTH, **change}, secured.folder)
    password = settings.pop("sasl_plain_password")
    policy = {
        "lake": str(tmp_path / "lake"),
        "clusters": {
            "c": {
                "bootstrap_servers": secured.addresses["SASL_SSL"],
                "kafka": settings
                | {"sasl_plain_password": {"env": "EVENLAG_PASSWORD"}, "bootstrap_timeout_ms": 1000},
            }
        },
    }
    (tmp_path / "p.yaml").write_text(json.dumps(policy), encoding="utf-8")
    only = ("--only", "brokers.login", "--timeout", "60", "--json")
    answer = evenlag("doctor", "--config", "p.yaml", *only, EVENLAG_PASSWORD=password)
    assert answer.exit_code == 1, answer.output
    [check] = json.loads(answer.stdout)["checks"]
    [finding] = check["findings"]
    assert cause in finding["finding"]
    assert finding["todo"].startswith(remedy)


def test_the_doctor_tells_that_the_policy_is_not_valid_whatever_it_is_asked_for(
    evenlag: Evenlag, tmp_path: Path
) -> None:
    text = "lake: /lake\nclusters: {c: {bootstrap_servers: b:1, kafka: {security_protocol: TLS}}}\n"
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    for only in ("brokers", "brokers.login"):
        answer = evenlag("doctor", "--config", "p.yaml", "--only", only)
        assert answer.exit_code == 1, answer.output
        assert "did you mean 'SSL'?" in answer.stdout


@pytest.mark.parametrize(
    ("change", "exit_code", "line"),
    [
        (
            {"SSL_CAFILE": "other-ca.pem"},
            3,
            "has a certificate that no authority in ssl_cafile (*) signed: put *",
        ),
        ({"SSL_CAFILE": "nope.pem"}, 2, "ssl_cafile: * cannot be read: No such file or directory: correct *"),
        (
            {"SASL_PLAIN_PASSWORD": "wrong"},
            3,
            "refuses the login of 'evenlag': * correct *sasl_plain_password",
        ),
        (
            {"SECURITY_PROTOCOL": "TLS"},
            2,
            "the variables EVENLAG_KAFKA_*: security_protocol: 'TLS' is none of *; did you mean 'SSL'?",
        ),
        ({"SECURITY_PROTOCOL": "sasl_ssl"}, 2, "'sasl_ssl' is none of *; did you mean 'SASL_SSL'?"),
        (
            {"SECURITY_PROTOCOL": "SASL_PLAINTEXT"},
            3,
            "without TLS (security_protocol is SASL_PLAINTEXT)*to SASL_SSL*",
        ),
    ],
)
def test_a_command_prints_one_line_and_nothing_of_kafka_python(
    secured: SecuredBroker, tmp_path: Path, change: dict[str, str], exit_code: int, line: str
) -> None:
    """In a process of its own, with the logging that its user has."""
    settings = {name.upper(): value for name, value in secured.login().items()} | change
    if "SSL_CAFILE" in change:
        settings["SSL_CAFILE"] = str(secured.folder / change["SSL_CAFILE"])
    done = subprocess.run(
        [sys.executable, "-m", "evenlag", "lag", "-b", secured.addresses["SASL_SSL"]],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_")}
        | {"EVENLAG_KAFKA_BOOTSTRAP_TIMEOUT_MS": "1000"}
        | {f"EVENLAG_KAFKA_{name}": value for name, value in settings.items()},
    )
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == ""
    [only] = done.stderr.splitlines()
    assert re.fullmatch("error: .*" + re.escape(line).replace(r"\*", ".*"), only), only
