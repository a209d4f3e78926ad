"""Copies of runs made on nodes that lack them.

Theory of operation. Runs never change, so a copy can be made at any time. It is made in a transaction (`copy …`), for
the length of which no sweep takes files of the relation: the file of a copy has the name that the run's first
transaction gave it. Several files are copied at a time. Each is read again before a commit names it, some of them in
each commit, so that what was copied before a failure is not copied again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RunId
from ebla.catalog import transactions as tx
from ebla.errors import StorageError
from ebla.model import changes as c
from ebla.model.relation import Relation, Run
from ebla.relations.copies import all_missing
from ebla.storage import copies
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.tables.context import Context
from ebla.tables.transaction import begin_of

log = logging.getLogger("ebla.topology")

COMMIT_BYTES = 256 * 2**20
COMMIT_FILES = 64
"""Copies are committed when they are so large or so many together."""

Copy = tuple[Run, NodeId]


def repair(context: Context) -> int:
    """Make good what nodes lack that can be written to; how many copies."""
    with context.catalog.reading() as connection:
        lacking = all_missing(connection)
    roots = context.roots()
    made = 0
    for relation, found in lacking:
        wanted = [(one.run, one.node) for one in found if one.node in roots and roots[one.node].is_writable]
        made += copy(context, relation, wanted) if wanted else 0
    return made


def copy(context: Context, relation: Relation, wanted: Sequence[Copy]) -> int:
    """Make copies of runs, and commit them; how many were made. What a node did not take is left out."""
    transaction = begin_of(context, relation, reason=f"{tx.COPY}{relation.name}")
    made = 0
    try:
        with context.kept_alive(transaction.id), context.at_work(f"copies of {relation.name}"):
            for part in _parts(wanted):
                done = _copied(transaction.roots, part)
                hit("copy.files_written")
                if done:
                    update = c.AddCopies(relation=relation.id, copies=done)
                    reason = f"copy {len(done)} runs of {relation.name}"
                    transaction.commit(transaction.decision(reason, updates=(update,), ends=False))
                    made += len(done)
    finally:
        tx.abort(context.catalog, transaction.id)  # what was committed stays
    log.info("relation=%s copies=%d of=%d", relation.name, made, len(wanted))
    return made


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


def _copied(roots: Mapping[NodeId, Root], wanted: Sequence[Copy]) -> tuple[tuple[RunId, NodeId], ...]:
    def one(copy: Copy) -> tuple[RunId, NodeId] | None:
        run, node = copy
        source = rf.readable_node(roots, run)
        if source is None:
            log.warning("run=%s expected a sound copy to copy from, found none", run.path)
            return None
        try:
            copies.copy_checked(roots[source], roots[node], run.path, run.bytes)
        except StorageError as error:
            log.warning("run=%s node=%s expected a copy, found none reason=%s", run.path, node, error)
            return None
        return run.id, node

    return tuple(done for done in rf.in_threads(one, list(wanted)) if done is not None)
