"""A certificate authority and a server certificate for the sandbox's TLS listener, created at start."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

_VALID = dt.timedelta(days=30)


def write_certificates(directory: Path) -> tuple[Path, Path]:
    """Write ``ca.pem`` for clients and ``server.pem`` (key and chain, mode 600) for the broker.

    Returns
    -------
    tuple
        The paths of ``ca.pem`` and ``server.pem``. The server's names are localhost and 127.0.0.1.
    """
    now = dt.datetime.now(dt.UTC)
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "evenlag sandbox authority")])
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]

    def build(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_ca: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + _VALID)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
            )
        )
        if is_ca:
            # Python's ssl module is strict since 3.13: an authority must have the keyCertSign usage.
            usage = x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False,
                encipher_only=False, decipher_only=False,
            )  # fmt: skip
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(ca_key, hashes.SHA256())

    ca_pem = build(ca_name, ca_key, is_ca=True).public_bytes(serialization.Encoding.PEM)
    server_pem = build(server_name, server_key, is_ca=False).public_bytes(serialization.Encoding.PEM)
    key_pem = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ca_file, server_file = directory / "ca.pem", directory / "server.pem"
    ca_file.write_bytes(ca_pem)
    server_file.touch(mode=0o600)
    server_file.write_bytes(key_pem + server_pem + ca_pem)
    return ca_file, server_file
