"""Copies of runs made on nodes that lack them.

Theory of operation. Runs never change, so a copy can be made at any time. It is made in a transaction (`copy …`), for
the length of which no sweep takes files of the relation: the file of a copy has the name that the run's first
transaction gave it. Several files are copied at a time. Each is read again before a commit names it, some of them in
each commit, so that what was copied before a failure is not copied again.

Copies for a transition carry the session of its stage, and their commits require that it is open. A copier that was
left behind by its transition is refused; its files are no run's, and a sweep takes them.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RunId
from ebla.catalog import transactions as tx
from ebla.catalog import transitions
from ebla.errors import StorageError
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


def repair(context: Context) -> int:
    """Make good what nodes lack that can be written to; how many copies."""
    with context.catalog.reading() as connection:
        lacking = all_missing(connection)
    roots = context.roots()
    made = 0
    for relation, found in lacking:
        wanted = [(one.run, one.node) for one in found if one.node in roots and roots[one.node].is_writable]
        made += copy(context, relation, wanted).made if wanted else 0
    return made


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
            some = copy(context, those[0][0], [(run, node) for _, run, node in those], session=session, is_over=is_over)
            done.made, done.failed = done.made + some.made, done.failed | some.failed
    return done


def copy(
    context: Context,
    relation: Relation,
    wanted: Sequence[Copy],
    *,
    session: str | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Copied:
    """Make copies of runs, and commit them. What a node did not take is left out."""
    transaction = begin_of(context, relation, reason=f"{tx.COPY}{relation.name}", session=session)
    requires = () if session is None else (c.SessionOpen(session=session),)
    copied, numbers = Copied(), itertools.count()
    try:
        with context.kept_alive(transaction.id), context.at_work(f"copies of {relation.name}"):
            for part in _parts(wanted):
                if is_over():
                    break
                done = _copied(transaction, part, numbers, copied.failed)
                hit("copy.files_written")
                if done:
                    update = c.AddCopies(relation=relation.id, copies=done)
                    reason = f"copy {len(done)} runs of {relation.name}"
                    transaction.commit(transaction.decision(reason, requires=requires, updates=(update,), ends=False))
                    copied.made += len(done)
    finally:
        tx.abort(context.catalog, transaction.id)  # what was committed stays
    return copied


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


def _copied(
    transaction: OpenTransaction, wanted: Sequence[Copy], numbers: Iterator[int], failed: dict[NodeId, str]
) -> tuple[tuple[RunId, NodeId], ...]:
    roots: Mapping[NodeId, Root] = transaction.roots

    def one(item: tuple[int, Copy]) -> tuple[RunId, NodeId] | None:
        number, (run, node) = item
        source = rf.readable_node(roots, run)
        if source is None:
            failed[node] = f"{run.path}: expected a sound copy to copy from, found none"
            return None
        beside = copy_path(run.relation, transaction.id, number)
        try:
            copies.copy_checked(roots[source], roots[node], run.path, run.bytes, beside)
        except StorageError as error:
            failed[node] = str(error)
            roots[node].remove(beside)
            return None
        return run.id, node

    found = rf.in_threads(one, list(zip(numbers, wanted, strict=False)))
    for node, reason in failed.items():
        log.warning("node=%s expected a copy, found none reason=%s", node, reason)
    return tuple(done for done in found if done is not None)
