"""A network that refuses connections to some ports: those that the file `EBLA_TEST_REFUSED` names at the moment, be
they new or open. Python imports this module before the program."""

import os
import socket
from typing import Any

_FILE = os.environ.get("EBLA_TEST_REFUSED", "")
_connect, _send, _sendall = socket.socket.connect, socket.socket.send, socket.socket.sendall


def _refuse(address: Any) -> None:
    try:
        with open(_FILE, encoding="utf-8") as file:
            refused = file.read().split()
    except OSError:
        return
    if isinstance(address, tuple) and str(address[1]) in refused:
        raise ConnectionRefusedError(f"the network refuses port {address[1]}")


def _refuse_open(one: socket.socket) -> None:
    try:
        address = one.getpeername()
    except OSError:
        return
    _refuse(address)


def connect(self: socket.socket, address: Any) -> None:
    _refuse(address)
    _connect(self, address)


def send(self: socket.socket, *given: Any) -> int:
    _refuse_open(self)
    return _send(self, *given)


def sendall(self: socket.socket, *given: Any) -> None:
    _refuse_open(self)
    _sendall(self, *given)


socket.socket.connect, socket.socket.send, socket.socket.sendall = connect, send, sendall  # type: ignore[method-assign, assignment]
