"""An S3 server that stores objects in a folder of this machine."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.jars import classpath_of
from sandbox.java_tools import java_command
from sandbox.processes import free_ports, start_process, stop_process
from tests.support.s3.requests import REGION, Answer, request
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Known before a server runs: the session's JVM, which starts earlier, has them in its environment.
IDENTITY = "evenlag-tests"
CREDENTIAL = "a-made-up-credential"
_MAIN = "org.gaul.s3proxy.Main"
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
# Its log writes to standard error, which it redirects to its log.
_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server with one access key.

    endpoint: ``http://127.0.0.1:port``.
    folder: The objects, in a folder for each bucket.
    """

    endpoint: str
    identity: str
    credential: str
    folder: Path

    def request(
        self, method: str, path: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a signed request."""
        return request(
            self.endpoint, self.identity, self.credential, method, path, body=body, headers=headers
        )

    def make_bucket(self, name: str) -> None:
        """Create a bucket."""
        answer = self.request("PUT", f"/{name}")
        assert answer.status == 200, answer

    def environment(self) -> dict[str, str]:
        """Return the variables by which both engines find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            **access_key(),
        }


def access_key() -> dict[str, str]:
    """Return the variables of the access key."""
    return {"AWS_ACCESS_KEY_ID": IDENTITY, "AWS_SECRET_ACCESS_KEY": CREDENTIAL}


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Run a server for a ``with`` block.

    folder: An empty folder for its settings, its log and its objects.
    """
    (port,) = free_ports(1)
    server = S3Server(f"http://127.0.0.1:{port}", IDENTITY, CREDENTIAL, folder / "objects")
    server.folder.mkdir(parents=True)
    settings = {
        "s3proxy.endpoint": server.endpoint,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": server.identity,
        "s3proxy.credential": server.credential,
        "jclouds.provider": "filesystem",
        "jclouds.filesystem.basedir": str(server.folder),
    }
    conf = folder / "s3.properties"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    command = [java_command(), *_OPTIONS, *_LOG_OPTIONS, "-cp", classpath_of("s3_server"), _MAIN]
    with (folder / "s3.log").open("wb") as log:
        process = start_process([*command, "--properties", str(conf)], log=log, env=dict(os.environ))
    try:

        def tail() -> str:
            return (folder / "s3.log").read_text(encoding="utf-8")

        def is_up() -> bool:
            assert process.poll() is None, tail()
            return _listens(port)

        wait_until(is_up, what=tail)
        yield server
    finally:
        stop_process(process)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
