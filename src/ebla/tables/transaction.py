"""A transaction of this process: what it found when it began, the files that are written in it, and how it ends.

Every commit in a transaction requires that the transaction is still open, and the last one ends it. A commit whose
answer was lost may have happened. So once a commit was tried, the transaction is closed before any of its files is
removed, and the files that the manifest names stay, whatever error came back. Before the first commit the manifest
names none of them, and they go first: on a full disk that makes the room in which the transaction can be closed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, TransactionId, Version
from ebla.catalog import manifest, reads
from ebla.catalog import transactions as tx
from ebla.errors import EblaError, StorageFullError
from ebla.model import changes as c
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import IndexCache
from ebla.spark import session as ssession
from ebla.storage.files import Root
from ebla.storage.roots import Roots
from ebla.tables.run_files import RunFiles
from ebla.tables.upkeep import Upkeep
from ebla.tables.write_access import WriteAccess

FULL_DISK_WAIT_S = 5.0
POLL_S = 0.05

Place = tuple[dict[NodeId, Root], Upkeep]
"""The roots of all nodes, and the indexes of a relation."""


def begin(context: WriteAccess, name: str, *, reason: str, work: c.WorkKind = c.WorkKind.WRITE) -> OpenTransaction:
    """Begin a transaction on the relation of a name. The relation and its indexes are those of the snapshot."""
    _, record, place = tx.begin_on(
        context.catalog,
        name,
        lambda connection, relation: _place(context.nodes, context.indexes, connection, relation),
        node=context.node,
        holder=context.holder,
        reason=reason,
        lease_us=context.leases.lease_us,
        work=work,
    )
    return OpenTransaction(context, record, *place)


def begin_of(
    context: WriteAccess,
    relation: Relation | None,
    *,
    reason: str,
    session: str | None = None,
    work: c.WorkKind = c.WorkKind.WRITE,
) -> OpenTransaction:
    """Begin a transaction on a relation that the caller has read, or on none."""
    record = tx.begin(
        context.catalog,
        relation,
        node=context.node,
        holder=context.holder,
        reason=reason,
        lease_us=context.leases.lease_us,
        session=session,
        work=work,
    )
    return OpenTransaction(context, record, context.roots(), None) if relation is None else join(
        context, record, relation
    )  # fmt: skip


def begin_copies(context: WriteAccess, relation: Relation) -> OpenTransaction:
    """Begin a transaction in which files that the manifest names are copied to nodes that lack them."""
    return begin_of(context, relation, reason=f"copy {relation.name}", work=c.WorkKind.COPY)


def join(context: WriteAccess, record: tx.Transaction, relation: Relation) -> OpenTransaction:
    """Go on with a transaction that was begun before. The relation's indexes are looked for now."""
    with context.catalog.reading() as connection:
        return OpenTransaction(context, record, *_place(context.nodes, context.indexes, connection, relation))


def _place(nodes: Roots, indexes: IndexCache, connection: Connection, relation: Relation) -> Place:
    return nodes.read(connection), Upkeep.read(indexes, connection, relation)


class OpenTransaction:
    """One attempt to write: its snapshot, its files, its commits, and its end."""

    def __init__(
        self, context: WriteAccess, record: tx.Transaction, roots: dict[NodeId, Root], upkeep: Upkeep | None
    ) -> None:
        self.context = context
        self.record = record
        self.roots = roots
        self._upkeep = upkeep
        self._files: list[RunFiles] = []
        self._has_tried = False
        """Whether a commit was tried, which may have happened whatever the answer was."""

    @property
    def id(self) -> TransactionId:
        return self.record.id

    @property
    def snapshot(self) -> Version:
        return self.record.snapshot

    @property
    def upkeep(self) -> Upkeep:
        assert self._upkeep is not None, "a transaction on no relation keeps no index"
        return self._upkeep

    @property
    def relation(self) -> Relation:
        return self.upkeep.base

    def snapshot_of(self, relation: Relation) -> Snapshot:
        with self.context.catalog.reading() as connection:
            return reads.snapshot(connection, relation, self.snapshot)

    def files_of(self, relation: Relation) -> RunFiles:
        """Where the files of a relation are written. Rolling back removes them."""
        files = RunFiles(relation, self.id, self.roots, self.context.settings, self.context.node)
        self._files.append(files)
        return files

    # ---- commits ----------------------------------------------------------------------------------------

    def decision(
        self,
        reason: str,
        *,
        relation: RelationId | None = None,
        requires: Sequence[c.Requirement] = (),
        updates: Sequence[c.Update] = (),
        work: c.WorkKind | None = None,
        ends: bool = True,
    ) -> c.Decision:
        """A commit of this transaction, which must be open. `ends`: nothing more is committed in it.

        `work`: what it is, if not what the transaction is for.
        """
        end = (c.EndTransaction(transaction=self.id),) if ends else ()
        return c.Decision(
            reason=reason,
            relation=relation,
            transaction=self.id,
            requires=(c.TransactionOpen(transaction=self.id), *requires),
            updates=(*updates, *end),
            work=work or self.record.work,
        )

    def commit(self, decision: c.Decision) -> Version:
        self._has_tried = True
        committed = self.context.catalog.commit(decision, node=self.context.node)
        self._forget_scratch()
        return committed.version

    def end(self) -> Version:
        """End with what was committed in it."""
        return self.commit(self.decision(self.record.reason))

    def decide(self, decide: Callable[[Connection, Version], c.Decision | None]) -> c.CommitRecord | None:
        """Commit what is decided on the state of the catalog that the commit finds; `None` if that is nothing."""
        self._has_tried = True
        committed = self.context.catalog.decide(decide, node=self.context.node)
        if committed is not None:
            self._forget_scratch()
        return committed

    # ---- without a commit -------------------------------------------------------------------------------

    def roll_back(self) -> None:
        """Close the transaction and remove every file of it that no commit names."""
        if not self._has_tried:
            try:
                self.remove_files()
            finally:
                tx.abort(self.context.catalog, self.id)
            return
        tx.abort(self.context.catalog, self.id)
        with self.context.catalog.reading() as connection:
            recorded = [manifest.recorded(connection, files.relation.id, self.id) for files in self._files]
        for files, keep in zip(self._files, recorded, strict=True):
            files.remove_all(keep)

    def give_up(self, error: BaseException) -> None:
        """Roll back after an error, which says more than one that rolling back may meet: the lease ends by itself.

        The catalog may lie on the full disk itself: then closing the transaction waits for the space to come back.
        """
        full = isinstance(error, StorageFullError)
        if full and any(files.has_scratch for files in self._files):
            with contextlib.suppress(Exception):  # Spark may be gone, and its files with it
                ssession.close_lost_files(self.context.writer)
        deadline = time.monotonic() + (FULL_DISK_WAIT_S if full else 0)
        with self.context.catalog.patience.without():
            while True:
                try:
                    return self.roll_back()
                except EblaError:
                    if time.monotonic() >= deadline:
                        return
                time.sleep(POLL_S)

    def remove_files(self) -> None:
        """Remove all files of the transaction, which no commit names."""
        for files in self._files:
            files.remove_all()

    def _forget_scratch(self) -> None:
        for files in self._files:
            files.forget_scratch()
