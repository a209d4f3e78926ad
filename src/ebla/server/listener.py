"""The API on a socket: where it listens, with TLS or without, and what is refused as unsafe."""

from __future__ import annotations

import ipaddress
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from ebla.errors import NodeUnavailableError, UsageError

START_S = 30.0
STOP_S = 10
"""How long requests that run are waited for when the listener stops."""
KEEP_ALIVE_S = 60
"""How long a connection without a request stays. Clients end theirs earlier: one that both end at the same moment would
take a request with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str = "127.0.0.1"
    port: int = 7601
    tls_cert: str | None = None
    tls_key: str | None = None

    @classmethod
    def of(cls, text: str, *, tls_cert: str | None = None, tls_key: str | None = None) -> Self:
        """`127.0.0.1:7601` or `[::1]:7601`."""
        host, found, port = text.rpartition(":")
        if not found or not port.isdigit() or int(port) > 65535 or not host:
            raise UsageError(f"listen: expected HOST:PORT, as in 127.0.0.1:7601, found {text!r}")
        return cls(host=host.strip("[]"), port=int(port), tls_cert=tls_cert, tls_key=tls_key)

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def has_tls(self) -> bool:
        return self.tls_cert is not None and self.tls_key is not None


def require_safe(address: Address, *, users: bool, insecure: bool = False) -> None:
    """Refuse what would let strangers in: an address beyond this machine without TLS, or without users."""
    if (address.tls_cert is None) != (address.tls_key is None):
        raise UsageError("TLS: expected a certificate and a key, found only one of them; give tls_cert and tls_key")
    if address.is_loopback or insecure or (users and address.has_tls):
        return
    missing = " and ".join(
        what for what, has in (("TLS (tls_cert, tls_key)", address.has_tls), ("users", users)) if not has
    )
    raise UsageError(
        f"listen {address.host}:{address.port}: expected TLS and users beyond loopback, found none of {missing}; "
        "give them, listen on 127.0.0.1, or say insecure if the network is trusted"
    )


class Listener:
    """An application that is served by a thread until the block ends."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self.address = address
        try:
            self._socket = socket.create_server(
                (address.host, address.port), family=socket.AF_INET6 if ":" in address.host else socket.AF_INET
            )
        except OSError as error:
            raise UsageError(
                f"listen {address.host}:{address.port}: expected a free port of this machine, found: {error}; stop the "
                "program that has it, or listen on another one"
            ) from error
        # Connections inherit it; asyncio sets it only where a socket names its protocol. Without it the body of an
        # answer waits until the client has acknowledged its head, 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="on",
                ssl_certfile=address.tls_cert,
                ssl_keyfile=address.tls_key,
                timeout_graceful_shutdown=STOP_S,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="ebla-http", daemon=True
        )

    @property
    def url(self) -> str:
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"{'https' if self.address.has_tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Returns when connections are answered."""
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(START_S / 0.01)):
            if self._server.started:
                return
            if not self._thread.is_alive():
                break
            waited.wait(0.01)
        raise NodeUnavailableError(f"{self.url}: expected the listener to start, found it silent; see the log")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_S + START_S)
        self._socket.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
