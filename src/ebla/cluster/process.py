"""A node as a process: it joins the cluster, serves the API, and does its part of the work until a signal stops it.

The API is served before Spark is up; Spark starts in the background, and epochs, builds and compaction with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ebla.api.assembly import open_database
from ebla.base.signals import asking
from ebla.catalog import topology
from ebla.catalog.processes import Role
from ebla.cluster.config import NodeConfig
from ebla.cluster.introduction import Introduction
from ebla.cluster.peers import Peers
from ebla.cluster.place import FILE, STOP_S, Place
from ebla.errors import EblaError, NodeConflictError
from ebla.server import rpc
from ebla.server.app import create_app
from ebla.server.listener import Listener, require_safe
from ebla.server.options import Options

if TYPE_CHECKING:
    from ebla.api.database import Database

log = logging.getLogger("ebla.node")

DRAIN_S = 8.0
"""How long it waits for work that runs before it cancels its Spark jobs."""
LOOK_S = 1.0


def run(config: NodeConfig) -> None:
    """Be the node until a signal comes."""
    address = config.address
    require_safe(address, users=config.users, insecure=config.insecure)
    other = Place.read(Path(config.root))
    if other is not None and other.pid != os.getpid() and other.is_running:
        raise NodeConflictError(f"{config.root}: expected no process of this node, found {other.pid}; stop it first")
    stopping = threading.Event()
    with asking(stopping):
        began = time.monotonic()
        database = _opened(config)
        try:
            options = Options(
                users=config.users,
                load_from=tuple(Path(one) for one in config.load_from),
                limits=config.limits,
                routers=() if config.secret is None else (rpc.router(database, config.secret),),
                stopping=stopping.is_set,
            )
            with Listener(create_app(database, options), address) as listener, _peers(config, database):
                Place(name=config.name, pid=os.getpid(), address=listener.url, started_at=time.time()).write(
                    Path(config.root)
                )
                log.info("node=%s serving url=%s after_s=%.1f", config.name, listener.url, time.monotonic() - began)
                if config.has_spark:
                    threading.Thread(target=_start_spark, args=(database,), name="ebla-spark", daemon=True).start()
                _follow(database, stopping)
                log.info("node=%s stopping", config.name)
                watchdog = threading.Timer(STOP_S - 1, _give_up)
                watchdog.daemon = True
                watchdog.start()
        finally:
            _close(database)
            with contextlib.suppress(OSError):
                (Path(config.root) / FILE).unlink()
    log.info("node=%s stopped", config.name)


def _peers(config: NodeConfig, database: Database) -> contextlib.AbstractContextManager[object]:
    """Calls to other nodes, where a secret says which ones belong together."""
    if config.secret is None:
        return contextlib.nullcontext()
    return Peers(database, config.secret, config.tls_ca)


def _opened(config: NodeConfig) -> Database:
    with Introduction(config) as introduction:
        introduction.enter()
        settings = config.connect_settings()
        database = open_database(config.catalog, None, introduction.ask, create=False, role=Role.NODE, **settings)
    catalog = database.context.catalog
    log.info("node=%s joined cluster=%s id=%s", config.name, catalog.read(topology.cluster_name), catalog.cluster_id())
    return database


def _start_spark(database: Database) -> None:
    try:
        began = time.monotonic()
        _ = database.spark
        database.wake()
        log.info("spark started after_s=%.1f", time.monotonic() - began)
    except Exception as error:  # the node serves without
        log.error("spark: expected it to start, found %s", error)


def _follow(database: Database, stopping: threading.Event) -> None:
    """Wake compaction for what other processes wrote: epochs and builds find it by themselves."""
    from ebla.relations import status

    seen: int | None = None
    while not stopping.wait(LOOK_S):
        if not database.context.maintains:
            continue
        try:
            version = database.version
            if version != seen:
                seen = version
                found = status.of(database.context.catalog)
                for name in (*(t.name for t in found.tables), *(v.name for v in found.views)):
                    database.background.written(name)
        except EblaError as error:
            log.warning("%s", error)


# ---- the end --------------------------------------------------------------------------------------------


def _close(database: Database) -> None:
    """Finish what runs, for a while; then cancel its Spark jobs, so that it ends."""

    def cancel() -> None:
        session = database.context.sessions.current
        if session is not None:
            log.warning("spark: jobs are cancelled reason=stopping")
            with contextlib.suppress(Exception):  # it may be gone already
                session.sparkContext.cancelAllJobs()

    timer = threading.Timer(DRAIN_S, cancel)
    timer.daemon = True
    timer.start()
    try:
        database.close()
    finally:
        timer.cancel()


def _give_up() -> None:
    log.error("node: expected its work to end in %.0f s, found it running; leases run out", STOP_S)
    logging.shutdown()
    os._exit(1)
