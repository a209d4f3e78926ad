"""What the catalog says of a relation that is queried, read again when a commit has changed it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from ebla.base.caches import CacheName, Lru
from ebla.base.ids import Version
from ebla.catalog import memory, reads
from ebla.catalog.store import Catalog
from ebla.errors import SnapshotError, UsageError
from ebla.model.relation import Relation
from ebla.query.paths import index_path, paths_of, unreadable
from ebla.query.prepared_relation import PreparedRelation
from ebla.query.view_freshness import fresh, reached
from ebla.relations.freshness import look_at_views
from ebla.relations.guard import require_built
from ebla.relations.indexes import IndexCache
from ebla.storage.node_storage import NodeStorage

POLL_S = 0.02


ASKED_MAX = 64


PREPARED_BYTES = 16 * 2**10


RUN_BYTES = 1_500
"""About what the paths of a relation take, and each of their runs."""


Signature = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A relation's name in lower case, relations that serve as its indexes, and their columns that are sorted downwards."""


Permit = Callable[[Relation], None]
"""Raises for a relation that is not for who asks."""


def anyone(relation: Relation) -> None:
    """Who has opened the database itself may read all of it."""


class Preparation:
    """Keeps what it has read until a commit changes it, or may have."""

    def __init__(self, catalog: Catalog, storage: NodeStorage, indexes: IndexCache, wake: Callable[[], None]) -> None:
        self._catalog = catalog
        self._nodes = storage.nodes
        self._indexes = indexes
        self._wake = wake
        self._prepared: Lru[PreparedRelation] = storage.caches.cache(CacheName.SNAPSHOTS)
        self._asked: dict[Signature, None] = {}
        """What queries have asked for since `taken_asked`."""

    def asked(
        self, name: str, also: tuple[str, ...] = (), down: tuple[str, ...] = (), permit: Permit = anyone
    ) -> PreparedRelation:
        """For a query. Others like it are likely to follow."""
        found = self.of(name, also, down, permit)
        if len(self._asked) < ASKED_MAX:
            self._asked[name.lower(), also, down] = None
        return found

    def taken_asked(self) -> list[Signature]:
        """What queries have asked for since this was called before."""
        taken, self._asked = self._asked, {}
        return list(taken)

    def of(
        self, name: str, also: tuple[str, ...] = (), down: tuple[str, ...] = (), permit: Permit = anyone
    ) -> PreparedRelation:
        """What the catalog says now. `permit` raises for a relation that is not for who asks."""
        if not isinstance(name, str):
            raise UsageError(f"relation: expected the name of a table or view, found {name!r}")
        signature = (name.lower(), also, down)
        kept = self._prepared.get(signature)
        if kept is not None and self._is_newest(kept):
            permit(kept.relation)
            return kept
        with self._catalog.reading() as connection:
            version = reads.current_version(connection)
            if kept is not None and self._is_unchanged(connection, kept, version):
                permit(kept.relation)
                made = replace(kept, version=version, fresh=fresh(connection, kept.relation))
            else:
                made = self._read(connection, name, also, down, version, permit)
        runs = sum(len(snapshot.level0) + len(snapshot.level1) for _, snapshot in made.paths)
        self._prepared.put(signature, made, PREPARED_BYTES + RUN_BYTES * runs)
        return made

    def _is_newest(self, kept: PreparedRelation) -> bool:
        """Whether no commit came since, of any process. Of its own ones this process knows without asking."""
        return kept.version >= self._catalog.own_commits.newest and kept.version == self._catalog.newest_version()

    def _is_unchanged(self, connection: Connection, kept: PreparedRelation, version: Version) -> bool:
        """Whether commits since then, all of this process, have changed no run that is read."""
        changed = self._catalog.own_commits.changed(kept.version, version)
        if changed is None or kept.shape != memory.shape_version(connection):
            return False
        return changed.isdisjoint(path.relation.id for path, _ in kept.paths)

    def _read(
        self,
        connection: Connection,
        name: str,
        also: Sequence[str],
        down: Sequence[str],
        version: Version,
        permit: Permit,
    ) -> PreparedRelation:
        relation = reads.relation(connection, name)
        permit(relation)
        require_built(connection, relation)
        paths = paths_of(connection, relation, self._indexes)
        paths += [index_path(relation, reads.relation(connection, other), descending=down) for other in also]
        found = tuple((path, reads.snapshot(connection, path.relation, version)) for path in paths)
        return PreparedRelation(
            version=version,
            shape=memory.shape_version(connection),
            relation=relation,
            paths=found,
            roots=self._nodes.read(connection),
            fresh=fresh(connection, relation),
            unreadable=tuple(unreadable(connection, relation, self._indexes)),
        )

    def wait(self, name: str, version: int, wait_s: float, permit: Permit = anyone) -> None:
        """Return when the relation shows everything committed up to a version."""
        deadline = time.monotonic() + wait_s
        while True:
            with self._catalog.reading() as connection:
                look = look_at_views(connection)  # the one statement: the rest is remembered, or comes with it
                relation = reads.relation(connection, name)
                permit(relation)
                newest = reads.current_version(connection)
                if version > newest:
                    raise SnapshotError(
                        f"{relation.name}: expected at_least up to {newest}, the newest version, found {version}"
                    )
                applied = reached(connection, relation, look, version)
            if applied is None:
                return
            if time.monotonic() >= deadline:
                raise SnapshotError(
                    f"view {relation.name}: expected version {version} applied within {wait_s:g} s, found {applied}; "
                    f"FLUSH {relation.name}, or wait longer"
                )
            self._wake()
            time.sleep(POLL_S)
