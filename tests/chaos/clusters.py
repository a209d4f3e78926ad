"""Clusters on real files for processes that are killed: made once, and copied with their catalog for each kill."""

from __future__ import annotations

import contextlib
import shutil
import unittest.mock
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

import ebla
from ebla.catalog import schema as s
from ebla.catalog import topology
from ebla.catalog.store import Catalog
from ebla.tables import compaction
from support.postgres import PostgresServer
from support.topology_tasks import KEYS
from support.warehouse import connect

SETTINGS: dict[str, Any] = {"auto_compact": False, "fsync": False, "repair_period_s": 0, "barrier_grace_s": 0.3}
NODES = ("a", "b", "c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A catalog, and a folder with the storage roots of its nodes."""

    where: str
    folder: Path

    def settings(self, *nodes: str, **settings: Any) -> dict[str, Any]:
        """Those of a process of some nodes; the first of them is its own."""
        own, *others = ((name, str(self.folder / name)) for name in nodes)
        return {**SETTINGS, "node": own[0], "storage_root": own[1], "nodes": dict(others), **settings}

    def open(self, *nodes: str, spark: SparkSession | None = None, **settings: Any) -> ebla.Database:
        return connect(self.where, spark, **self.settings(*nodes, **settings))


def fill(cluster: Cluster, nodes: tuple[str, ...] = NODES, *, tablets: int = 4, replication: int = 2) -> None:
    """A table with rows and an index on some nodes. Its runs lie in level 0 and span tablets."""
    with cluster.open(*nodes) as db:
        options = f"tablets = {tablets}, replication = {replication}"
        db.sql(f"CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH ({options}); CREATE INDEX by_n ON t (n)")
        for first in range(0, KEYS, KEYS // 3):
            db.table("t").upsert([{"id": i, "n": i} for i in range(first, first + KEYS // 3)])


def folded(cluster: Cluster) -> None:
    """The same with its runs in level 1: a split has to cut them. By the Spark that this process has."""
    fill(cluster)
    with cluster.open(*NODES, spark=SparkSession.builder.getOrCreate()) as db:
        db.compact("t")


def folded_in_part(cluster: Cluster) -> None:
    """The same with the first tablet folded alone: tablets that become one have to be folded up to one version."""
    fill(cluster)
    with (
        cluster.open(*NODES, spark=SparkSession.builder.getOrCreate()) as db,
        unittest.mock.patch.multiple(compaction, PIECE_ROWS=1, cores_of=lambda cores: 1),
    ):
        assert not compaction.compact(db.context, "t", gives_way=lambda: True).ended


class Images:
    """Clusters that are made once, each by its own function, and copied."""

    def __init__(self, folder: Path, server: PostgresServer | None = None) -> None:
        """With a server their catalogs are its databases, otherwise SQLite."""
        self._folder = folder
        self._server = server
        self._stack = contextlib.ExitStack()
        self._made: dict[Callable[[Cluster], None], Cluster] = {}
        self._copies = 0

    def __enter__(self) -> Images:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def copy(self, make: Callable[[Cluster], None]) -> Iterator[Cluster]:
        image = self._image(make)
        self._copies += 1
        folder = self._folder / f"copy{self._copies}"
        shutil.copytree(image.folder, folder)
        with contextlib.ExitStack() as stack:
            where = str(folder / "catalog")
            if self._server is not None:
                template = urlsplit(image.where).path.lstrip("/")
                where = stack.enter_context(self._server.database(template))
            cluster = Cluster(where=where, folder=folder)
            _move_roots(cluster, image.folder)
            yield cluster
        shutil.rmtree(folder)

    def _image(self, make: Callable[[Cluster], None]) -> Cluster:
        if make not in self._made:
            folder = self._folder / f"image{len(self._made)}"
            folder.mkdir(parents=True)
            where = str(folder / "catalog")
            if self._server is not None:
                where = self._stack.enter_context(self._server.database())
            self._made[make] = Cluster(where=where, folder=folder)
            make(self._made[make])
        return self._made[make]


def _move_roots(cluster: Cluster, before: Path) -> None:
    """Say in the catalog of a copy where its storage roots lie."""
    with contextlib.closing(Catalog.open(cluster.where)) as catalog, catalog.writing() as connection:
        for member in topology.members(connection).values():
            root = str(cluster.folder / Path(member.root).relative_to(before))
            of_node = s.topology.c.host_id == member.id
            connection.execute(s.topology.update().where(of_node).values(storage_root=root))
