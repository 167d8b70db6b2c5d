"""Two brokers of one cluster, the second behind a proxy that can stall: it lives, leads, and says nothing."""

from __future__ import annotations

import contextlib
import copy
import socket
import struct
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from evenlag.kafka.broker_requests import BrokerCalls
from sandbox.processes import free_ports
from tests.support.broker_node import BrokerNode, ClusterPlace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from evenlag.kafka.broker_requests import Call
    from sandbox.kafka.broker import Broker

_CHUNK = 65_536
_POLL_S = 0.2
# Each connection asks first what the broker can do.
_API_VERSIONS = 18


def shorten_requests(patch: pytest.MonkeyPatch, node: int) -> None:
    """Give the requests to one broker, which will not answer, less time than those to the others."""
    send = BrokerCalls._send

    def sent(calls: BrokerCalls, call: Call, to: int) -> Any:
        if to == node:
            calls = copy.copy(calls)
            calls._limits = replace(calls._limits, request_timeout_s=3.0)
        return send(calls, call, to)

    patch.setattr(BrokerCalls, "_send", sent)


class StallingProxy:
    """Passes bytes between clients and a broker until a test makes it withhold the responses.

    requests: Requests that clients sent, by Kafka's API key, without the first request of each connection.
    """

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.partition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", free_ports(1)[0]))
        self._listener.settimeout(_POLL_S)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: Counter[int] = Counter()
        self._flows = threading.Event()
        self._flows.set()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._flows.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def stall(self) -> None:
        """Hold all answers back from now on."""
        self.requests.clear()
        self._flows.clear()

    def flow(self) -> None:
        """Let answers through again."""
        self._flows.set()

    def _accept(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
                for source, sink, is_request in ((client, server, True), (server, client, False)):
                    source.settimeout(_POLL_S)
                    pump = threading.Thread(target=self._pump, args=(source, sink, is_request), daemon=True)
                    self._threads.append(pump)
                    pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        seen = b""
        with contextlib.suppress(OSError), source, sink:
            while not self._ended.is_set():
                try:
                    data = source.recv(_CHUNK)
                except TimeoutError:
                    continue
                if not data:
                    return
                if is_request:
                    seen = self._count(seen + data)
                else:
                    self._flows.wait()
                sink.sendall(data)

    def _count(self, seen: bytes) -> bytes:
        """Count whole requests; returns what is left over."""
        while len(seen) >= 6:
            size, api = struct.unpack(">ih", seen[:6])
            if len(seen) < 4 + size:
                break
            if api != _API_VERSIONS:
                self.requests[api] += 1
            seen = seen[4 + size :]
        return seen


class SecondBroker(BrokerNode):
    """A broker, and no controller, that joins another's cluster and sends clients to a proxy."""

    def __init__(self, directory: Path, first: Broker) -> None:
        super().__init__(directory, place=ClusterPlace(first.cluster_id, 2, {1: first.controller}))

    def start_behind(self, proxy: StallingProxy) -> None:
        """Start it; clients that ask for it are sent to the proxy."""
        self._extra["advertised.listeners"] = f"PLAINTEXT://{proxy.address}"
        try:
            self.prepare()
            self.restart()
        except BaseException:
            self.kill()
            raise
