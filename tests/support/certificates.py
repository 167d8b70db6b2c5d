"""A certificate authority and server certificates for the TLS listeners of brokers, created at start."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

_VALID: Final = dt.timedelta(days=30)
_LOCAL: Final = ("localhost", "127.0.0.1")


class CertificateAuthority:
    """An authority with a new key, whose certificate is in ``ca_file``, a PEM file."""

    def __init__(self, ca_file: Path) -> None:
        self.ca_file = ca_file
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "evenlag sandbox authority")])
        # Python's ssl module is strict since 3.13: an authority must have the keyCertSign usage.
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = self._builder(self._name, self._key, _VALID, is_ca=True).add_extension(usage, critical=True)
        self._pem = self._signed(builder)
        ca_file.write_bytes(self._pem)

    def issue(
        self,
        file: Path,
        *,
        names: tuple[str, ...] = _LOCAL,
        valid: dt.timedelta = _VALID,
        password: str | None = None,
    ) -> Path:
        """Write a key and the chain of its certificate, mode 600.

        password: Encrypts the key; None: it is not encrypted.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        hosts = [_general_name(name) for name in names]
        builder = self._builder(subject, key, valid, is_ca=False).add_extension(
            x509.SubjectAlternativeName(hosts), critical=False
        )
        key_pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode()),
        )
        file.touch(mode=0o600)
        file.write_bytes(key_pem + self._signed(builder) + self._pem)
        return file

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, valid: dt.timedelta, *, is_ca: bool
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1) + min(valid, dt.timedelta()))
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def write_certificates(directory: Path) -> tuple[Path, Path]:
    """Write ``ca.pem`` for clients and ``server.pem`` (key and chain, mode 600) for the broker.

    Returns the paths of ``ca.pem`` and ``server.pem``. The server's names are localhost and 127.0.0.1.
    """
    authority = CertificateAuthority(directory / "ca.pem")
    return authority.ca_file, authority.issue(directory / "server.pem")


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
