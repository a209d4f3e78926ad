"""Copies of runs made on nodes that lack them.

Theory of operation. Runs never change, so a copy can be made at any time. It is made in a transaction (`copy …`), for
the length of which no sweep takes files of the relation: the file of a copy has the name that the run's first
transaction gave it. Several files are copied at a time (`ebla.storage.copying`). Each is read again before a commit
names it, some of them in each commit, so that what was copied before a failure is not copied again.

Copies for a transition carry the session of its stage, and their commits require that it is open. A copier that was
left behind by its transition is refused; its files are no run's, and a sweep takes them.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, TransactionId
from ebla.base.pace import PACE
from ebla.catalog import tablet_copies
from ebla.catalog import transactions as tx
from ebla.errors import EblaError
from ebla.model import changes as c
from ebla.model.relation import Relation, Run
from ebla.model.topology import Tablet
from ebla.relations.copies import all_missing
from ebla.storage.copying import Copier, CopyResult, Lack
from ebla.topology.ports import Host

log = logging.getLogger("ebla.topology")

REPAIR = "repair"
"""The lease under which copies are made that nodes lack."""
COMMIT_BYTES = 2**30
COMMIT_FILES = 64
"""Copies are committed when they have reached this size or this number."""

Copy = tuple[Run, NodeId]


def missing_copies(host: Host) -> list[tuple[Relation, list[Copy]]]:
    """The copies that nodes lack that can be written to."""
    missing = host.catalog.read(all_missing)
    nodes = host.nodes.files().writable if missing else frozenset()
    found = [(relation, [(one.run, one.node) for one in those if one.node in nodes]) for relation, those in missing]
    return [(relation, wanted) for relation, wanted in found if wanted]


def repair(
    host: Host,
    *,
    only: NodeId | None = None,
    sources: Collection[NodeId] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> CopyResult:
    """Make good what nodes lack that can be written to. What one relation lacks and cannot get stops no other.

    `only`: on one node. `sources`: from these nodes alone. `is_over`: asked between files whether to stop.
    """
    done = CopyResult()
    for relation, found in missing_copies(host):
        wanted = [(run, node) for run, node in found if only in (None, node) and node not in done.full]
        if not wanted or is_over():
            continue
        try:
            copy(host, relation, wanted, done, sources=sources, is_over=is_over)
        except EblaError as error:
            log.warning("relation=%s expected its copies made, found reason=%s", relation.name, error)
            done.failed |= dict.fromkeys({node for _, node in wanted}, str(error))
    return done


def stream(host: Host, tablet: Tablet, session: str, is_over: Callable[[], bool] = lambda: False) -> CopyResult:
    """Copy what the new replicas of a tablet lack to those that can be written to, under the session of its stage.

    `is_over`: asked between files whether to stop.
    """
    with host.catalog.reading() as connection:
        lacking = tablet_copies.missing_copies(connection, tablet)
    writable, done = host.nodes.files().writable, CopyResult()
    for number, found in itertools.groupby(lacking, key=lambda one: one[0].id):
        those = [one for one in found if one[2] in writable]
        if those:
            log.info("tablet=%d relation=%d copies=%d session=%s", tablet[1], number, len(those), session)
            wanted = [(run, node) for _, run, node in those]
            copy(host, those[0][0], wanted, done, session=session, is_over=is_over)
    return done


def copy(
    host: Host,
    relation: Relation,
    wanted: Sequence[Copy],
    copied: CopyResult,
    *,
    session: str | None = None,
    sources: Collection[NodeId] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Make copies of runs, commit them, and note what became of them. What a node did not take is left out."""
    before = copied.made
    transaction = begin(host, relation, f"copy {relation.name}", session)
    requires: tuple[c.Requirement, ...] = (c.TransactionOpen(transaction=transaction),)
    if session is not None:
        requires = (*requires, c.SessionOpen(session=session))
    try:
        paced = PACE.paced(host.settings.move_share)
        with paced, host.kept_alive(transaction), host.at_work(f"copies of {relation.name}"):
            copier = Copier(host.nodes.files(), transaction, copied, is_over)
            for part in _parts(wanted):
                if is_over():
                    break
                made = copier.copy([_lack(run, node, sources) for run, node in part])
                done = tuple((run.id, node) for (run, node), is_made in zip(part, made, strict=True) if is_made)
                hit("copy.files_written")
                if done:
                    update = c.AddCopies(relation=relation.id, copies=done)
                    reason = f"copy {len(done)} runs of {relation.name}"
                    decision = c.Decision(
                        reason=reason,
                        transaction=transaction,
                        requires=requires,
                        updates=(update,),
                        work=c.WorkKind.COPY,
                    )
                    host.catalog.commit(decision, node=host.node)
                    copied.made += len(done)
    finally:
        tx.abort(host.catalog, transaction)  # what was committed stays
    log.info("relation=%s copies=%d of=%d", relation.name, copied.made - before, len(wanted))


def begin(host: Host, relation: Relation | None, reason: str, session: str | None = None) -> TransactionId:
    """Begin a transaction in which files are copied."""
    lease_us = host.leases.lease_us
    begun = tx.begin(
        host.catalog,
        relation,
        node=host.node,
        holder=host.holder,
        reason=reason,
        lease_us=lease_us,
        session=session,
        work=c.WorkKind.COPY,
    )
    return begun.id


def _lack(run: Run, node: NodeId, sources: Collection[NodeId] | None) -> Lack:
    have = run.nodes if sources is None else tuple(one for one in run.nodes if one in sources)
    return Lack(run.relation, run.path, run.bytes, node, have)


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
