"""Several nodes of one cluster in this process, which reach each other over HTTP alone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import ebla
from ebla.catalog.processes import Role
from ebla.cluster.peers import Peers
from ebla.server import rpc
from ebla.server.app import create_app
from ebla.server.listener import Address, Listener
from ebla.server.options import Options
from support.postgres import held_port
from support.warehouse import connect

SECRET = "the secret of a cluster"


def own_port(stack: ExitStack) -> int:
    """A port for a listener of this process, which says its address before it listens."""
    return int(stack.enter_context(held_port()).getsockname()[1])


class Nodes:
    """Nodes of one cluster in this process, each with an API and calls to the others."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._url, self._folder, self._stack = url, folder, stack

    def start(self, name: str, spark: SparkSession | None = None, **settings: Any) -> ebla.Database:
        port = own_port(self._stack)
        place = {"node": name, "storage_root": str(self._folder / name), "address": f"http://127.0.0.1:{port}"}
        opened = self._stack.enter_context(connect(self._url, spark, role=Role.NODE, **place, **settings))
        app = create_app(opened, Options(routers=(rpc.router(opened, SECRET),)))
        self._stack.enter_context(Listener(app, Address(port=port)))
        self._stack.enter_context(Peers(opened, SECRET))
        return opened
