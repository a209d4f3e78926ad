"""A way to PostgreSQL that a test can cut: before a commit reaches the server, or after, before its answer comes back.

with Proxy(port) as proxy:
    proxy.cut(Cut.ANSWER)          # the next COMMIT happens, and its client hears nothing of it
    catalog.commit(…)
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from enum import Enum, auto
from types import TracebackType

COMMIT = b"COMMIT\0"


class Cut(Enum):
    COMMIT = auto()
    """The server never gets it."""
    ANSWER = auto()
    """The server has done it; the client never hears of it."""


class Proxy:
    """Passes bytes on, both ways, until told otherwise. A context manager."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._due: list[Cut] = []
        self.cuts = 0
        self._is_silent = False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self, *how: Cut) -> None:
        """Cut the connections of the next commits, one after the other."""
        with self._lock:
            self._due.extend(how)

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        """No connection is passed on until the block ends."""
        self._is_silent = True
        _close(*self._sockets)
        try:
            yield
        finally:
            self._is_silent = False

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_silent:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            self._sockets += [client, server]
            silent = threading.Event()
            self._start(self._forth, client, server, silent)
            self._start(self._back, client, server, silent)

    def _forth(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                if COMMIT in data and (how := self._take()) is not None:
                    if how is Cut.COMMIT:
                        break
                    silent.set()  # before the server can answer
                server.sendall(data)
        _close(client, server)

    def _back(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if silent.is_set():
                    break  # it has answered: it has committed
                client.sendall(data)
        _close(client, server)

    def _take(self) -> Cut | None:
        with self._lock:
            if not self._due:
                return None
            self.cuts += 1
            return self._due.pop(0)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _close(self._listener, *self._sockets)
        for thread in self._threads:
            thread.join(timeout=10)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
