"""Signed requests to an S3 server (AWS Signature Version 4), with nothing but the standard library."""

from __future__ import annotations

import hashlib
import hmac
import http.client
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request(
    endpoint: str,
    identity: str,
    credential: str,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request on a connection of its own."""
    host = urlsplit(endpoint).netloc
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    signed = {
        "host": host,
        "x-amz-content-sha256": digest,
        "x-amz-date": moment,
        **{name.lower(): value for name, value in (headers or {}).items()},
    }
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    canonical = "\n".join([method, quote(path), "", lines, names, digest])
    scope = f"{moment[:8]}/{REGION}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credential}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    signed["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={identity}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    connection = http.client.HTTPConnection(host, timeout=600)
    try:
        connection.request(method, quote(path), body=body, headers=signed)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()
