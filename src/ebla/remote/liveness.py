"""Waits for an answer that end when the node is silent.

Theory of operation. A statement may run for hours, so its answer has no time limit. A process that is stopped, or whose
threads hang, keeps its connections: the kernel acknowledges for it. So a client that has waited for `ASK_S` asks the
node's `/health/live` over another connection, again and again. Any answer starts the time anew, so a node that is only
slow is not left. Without one for `silence_s` the wait ends as if the connection were lost: the request goes to the next
node, and its id settles what the silent one may still commit.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpcore
import httpx

ASK_S = 5.0
"""How long a request waits before it asks whether the node lives, and between two such questions."""
LIVE_S = 10.0
"""How long such a question waits."""

Address = tuple[str, int]
Require = Callable[[float], None]


class Liveness:
    """When each node of a cluster was last heard of. Safe to use from several threads."""

    def __init__(
        self,
        urls: Iterable[str],
        context: ssl.SSLContext,
        silence_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.silence_s = silence_s
        self.clock = clock
        self._context = context
        self._urls = {_address(httpx.URL(url)): url for url in urls}
        self._heard: dict[Address, float] = {}
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None

    def require(self, node: Address, since: float) -> None:
        """Ask the node, and raise if it is silent, and was since the beginning of a wait."""
        if self.answers(node):
            self._heard[node] = self.clock()
        elif self.clock() - max(since, self._heard.get(node, since)) >= self.silence_s:
            raise httpcore.ReadTimeout(f"no answer for {self.silence_s:g} s, nor one to /health/live")

    def answers(self, node: Address) -> bool:
        try:
            self._asking().get(f"{self._urls[node]}/health/live")
        except httpx.TransportError:
            return False
        return True

    def _asking(self) -> httpx.Client:
        """Each question has a connection of its own: one that hangs shall not take the next along."""
        with self._lock:
            if self._client is None:
                limits = httpx.Limits(max_keepalive_connections=0)
                self._client = httpx.Client(verify=self._context, limits=limits, timeout=LIVE_S, trust_env=False)
            return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _address(url: httpx.URL) -> Address:
    return url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)


class NodeTransport(httpx.HTTPTransport):
    """As the transport of httpx, but that waits without a limit are watched."""

    def __init__(self, liveness: Liveness, context: ssl.SSLContext, socket_options: Sequence[Any]) -> None:
        super().__init__(verify=context)
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=None,
            keepalive_expiry=httpx.Limits().keepalive_expiry,
            socket_options=socket_options,
            network_backend=_Network(liveness),
        )


class _Network(httpcore.SyncBackend):
    def __init__(self, liveness: Liveness) -> None:
        super().__init__()
        self._liveness = liveness

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(stream, lambda since: self._liveness.require((host, port), since), self._liveness.clock)


class _Stream(httpcore.NetworkStream):
    """A connection. A wait without a limit is cut into short ones."""

    def __init__(self, stream: httpcore.NetworkStream, require: Require, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._require = require
        self._clock = clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if timeout is not None:
            return self._stream.read(max_bytes, timeout)
        begun = self._clock()
        while True:
            try:
                return self._stream.read(max_bytes, ASK_S)
            except httpcore.ReadTimeout:
                self._require(begun)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Not by the stream's own `write`: after a time-out it does not say how much was sent."""
        if timeout is not None:
            self._stream.write(buffer, timeout)
            return
        socket = self._stream.get_extra_info("socket")
        begun, rest = self._clock(), memoryview(buffer)
        while rest:
            socket.settimeout(ASK_S)
            try:
                rest = rest[socket.send(rest) :]
            except TimeoutError:
                self._require(begun)
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error
            else:
                begun = self._clock()

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._require, self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
