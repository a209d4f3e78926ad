"""Copies of runs made on nodes that lack them.

Theory of operation. Runs never change, so a copy can be made at any time. It is made in a transaction (`copy …`), for
the length of which no sweep takes files of the relation: the file of a copy has the name that the run's first
transaction gave it. Several files are copied at a time. Each is read again before a commit names it, some of them in
each commit, so that what was copied before a failure is not copied again. A node whose disk is full gets no more.

Copies for a transition carry the session of its stage, and their commits require that it is open. A copier that was
left behind by its transition is refused; its files are no run's, and a sweep takes them.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RunId
from ebla.catalog import transactions as tx
from ebla.catalog import transitions
from ebla.errors import EblaError, StorageError, StorageFullError
from ebla.model import changes as c
from ebla.model.relation import Relation, Run
from ebla.model.topology import Tablet
from ebla.relations.copies import all_missing
from ebla.storage import copies
from ebla.storage import runs as rf
from ebla.storage.files import Root, copy_path
from ebla.tables.context import Context
from ebla.tables.transaction import OpenTransaction, begin_of

log = logging.getLogger("ebla.topology")

REPAIR = "repair"
"""The lease under which copies are made that nodes lack."""
COMMIT_BYTES = 256 * 2**20
COMMIT_FILES = 64
"""Copies are committed when they are so large or so many together."""

Copy = tuple[Run, NodeId]


@dataclass(slots=True, kw_only=True)
class Copied:
    """What became of copies that were wanted."""

    made: int = 0
    failed: dict[NodeId, str] = field(default_factory=dict)
    """Why a node did not take one, or none could be made for it."""
    full: set[NodeId] = field(default_factory=set)
    """The nodes whose disks are full: nothing more is copied to them."""


def lacking(context: Context) -> list[tuple[Relation, list[Copy]]]:
    """The copies that nodes lack that can be written to."""
    missing = context.catalog.read(all_missing)
    nodes = {node for node, root in context.roots().items() if root.is_writable} if missing else set()
    found = [(relation, [(one.run, one.node) for one in those if one.node in nodes]) for relation, those in missing]
    return [(relation, wanted) for relation, wanted in found if wanted]


def repair(
    context: Context,
    *,
    only: NodeId | None = None,
    sources: Collection[NodeId] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Copied:
    """Make good what nodes lack that can be written to. What one relation lacks and cannot get stops no other.

    `only`: on one node. `sources`: from these nodes alone. `is_over`: asked between files whether to stop.
    """
    done = Copied()
    for relation, found in lacking(context):
        wanted = [(run, node) for run, node in found if only in (None, node) and node not in done.full]
        if not wanted or is_over():
            continue
        try:
            copy(context, relation, wanted, done, sources=sources, is_over=is_over)
        except EblaError as error:
            log.warning("relation=%s expected its copies made, found reason=%s", relation.name, error)
            done.failed |= dict.fromkeys({node for _, node in wanted}, str(error))
    return done


def stream(context: Context, tablet: Tablet, session: str, is_over: Callable[[], bool] = lambda: False) -> Copied:
    """Copy what the new replicas of a tablet lack to those that can be written to, under the session of its stage.

    `is_over`: asked between files whether to stop.
    """
    with context.catalog.reading() as connection:
        lacking = transitions.lacking(connection, tablet)
    roots, done = context.roots(), Copied()
    for number, found in itertools.groupby(lacking, key=lambda one: one[0].id):
        those = [one for one in found if one[2] in roots and roots[one[2]].is_writable]
        if those:
            log.info("tablet=%d relation=%d copies=%d session=%s", tablet[1], number, len(those), session)
            wanted = [(run, node) for _, run, node in those]
            copy(context, those[0][0], wanted, done, session=session, is_over=is_over)
    return done


def copy(
    context: Context,
    relation: Relation,
    wanted: Sequence[Copy],
    copied: Copied,
    *,
    session: str | None = None,
    sources: Collection[NodeId] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Make copies of runs, commit them, and note what became of them. What a node did not take is left out."""
    before = copied.made
    transaction = begin_of(context, relation, reason=f"{tx.COPY}{relation.name}", session=session)
    requires = () if session is None else (c.SessionOpen(session=session),)
    try:
        with context.kept_alive(transaction.id), context.at_work(f"copies of {relation.name}"):
            files = _Files(transaction, copied, sources, is_over)
            for part in _parts(wanted):
                if is_over():
                    break
                done = files.copy(part)
                hit("copy.files_written")
                if done:
                    update = c.AddCopies(relation=relation.id, copies=done)
                    reason = f"copy {len(done)} runs of {relation.name}"
                    transaction.commit(transaction.decision(reason, requires=requires, updates=(update,), ends=False))
                    copied.made += len(done)
    finally:
        tx.abort(context.catalog, transaction.id)  # what was committed stays
    log.info("relation=%s copies=%d of=%d", relation.name, copied.made - before, len(wanted))


def _parts(wanted: Sequence[Copy]) -> Iterator[list[Copy]]:
    part: list[Copy] = []
    size = 0
    for run, node in wanted:
        part.append((run, node))
        size += run.bytes
        if size >= COMMIT_BYTES or len(part) >= COMMIT_FILES:
            yield part
            part, size = [], 0
    if part:
        yield part


class _Files:
    """The files that are copied in one transaction."""

    def __init__(
        self,
        transaction: OpenTransaction,
        copied: Copied,
        sources: Collection[NodeId] | None,
        is_over: Callable[[], bool],
    ) -> None:
        self._transaction = transaction
        self._roots: Mapping[NodeId, Root] = transaction.roots
        self._copied = copied
        self._from = {node: root for node, root in self._roots.items() if sources is None or node in sources}
        self._is_over = is_over
        self._numbers = itertools.count()

    def copy(self, wanted: Sequence[Copy]) -> tuple[tuple[RunId, NodeId], ...]:
        """Those that were made."""
        found = rf.in_threads(self._one, list(zip(self._numbers, wanted, strict=False)))
        return tuple(done for done in found if done is not None)

    def _one(self, item: tuple[int, Copy]) -> tuple[RunId, NodeId] | None:
        number, (run, node) = item
        if node in self._copied.full or self._is_over():
            return None
        source = rf.readable_node(self._from, run)
        beside = copy_path(run.relation, self._transaction.id, number)
        try:
            if source is None:
                raise StorageError(f"{run.path}: expected a sound copy to copy from, found none")
            copies.copy_checked(self._roots[source], self._roots[node], run.path, run.bytes, beside)
        except StorageError as error:
            if isinstance(error, StorageFullError):
                self._copied.full.add(node)
            self._copied.failed[node] = str(error)
            log.warning("run=%s node=%s expected a copy, found none reason=%s", run.path, node, error)
            return None
        return run.id, node
