"""Vacuum forgets old versions; the sweep removes files of no transaction and no run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import audit, history, leftovers, reads, topology
from ebla.catalog import relations as relation_rows
from ebla.catalog import transactions as tx
from ebla.catalog.sessions import oldest_needed
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, UsageError
from ebla.model import changes as c
from ebla.model.relation import FOREVER
from ebla.relations.readers import least_read
from ebla.relations.views import progress_name
from ebla.storage.files import Root, owner
from ebla.tables.context import Context

REMEMBER_S = 3600.0
"""Commits and transactions are known for so long at least: a commit whose answer was lost is looked for by its id."""
TRIMMED_AT_ONCE = 10_000
COPIES_AT_ONCE = 100
"""The number of copies without a commit that vacuum removes in one catalog transaction, while writers wait."""
RETENTION_S_MAX = 100 * 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumResult:
    horizon: Version
    relations: int
    files: int
    bytes: int
    orphans: int


class File(NamedTuple):
    """A file under a node's root."""

    node: NodeId
    path: str
    bytes: int


def plan_horizon(newest: Version, by_time: Version, needed: Version | None) -> Version:
    """Forget what is older than the retention period, but no version that a reader holds."""
    return min(newest, by_time) if needed is None else min(newest, by_time, needed)


def horizons(
    relations: Sequence[RelationId], horizon: Version, read: Mapping[RelationId, Version | None]
) -> dict[RelationId, Version]:
    """The horizon of each relation: a dictionary keeps the oldest version at which a view still reads it."""
    return {r: horizon if (least := read.get(r)) is None else min(horizon, least) for r in relations}


def vacuum(context: Context, name: str | None = None, *, retain_s: float | None = None) -> VacuumResult:
    """Forget old versions, delete their files, and sweep files that no commit ever named."""
    catalog = context.catalog
    tx.reap(catalog)
    keep_s = context.settings.retention_s if retain_s is None else retain_s
    if not 0 <= keep_s <= RETENTION_S_MAX:
        raise UsageError(f"retention: expected 0 to {RETENTION_S_MAX:.0f} seconds, found {keep_s:.0f}")
    horizon, targets = _advance(context, name, keep_s)
    hit("vacuum.horizon_set")
    removed, size, orphans = sweep(context, targets if name is not None else None)
    long_ago = catalog.clock() - int(max(keep_s, REMEMBER_S) * 1e6)
    tx.forget_ended(catalog, long_ago)
    if name is None:
        _trim(catalog, horizon, long_ago)
        audited = catalog.clock() - int(context.settings.audit_retention_s * 1e6)
        catalog.change(lambda connection: audit.forget(connection, audited))
    return VacuumResult(horizon=horizon, relations=len(targets), files=removed, bytes=size, orphans=orphans)


def _trim(catalog: Catalog, horizon: Version, long_ago_us: int) -> None:
    """Forget relations that were dropped, sessions that were closed, and commits that no time travel can name.

    Commits go some at a time: commits of others come between.
    """
    with catalog.reading() as connection:
        since, until = history.complete_since(connection), history.newest_until(connection, long_ago_us)
        until = min(horizon, until)
        kept = history.last_of_each(connection, until)
    with catalog.writing() as connection:
        leftovers.forget_dropped(connection, until, progress_name)
        leftovers.forget_sessions(connection, until)
    while since < until:
        since = Version(min(since + TRIMMED_AT_ONCE, until))
        with catalog.writing() as connection:
            history.trim(connection, since, kept)


def _advance(context: Context, name: str | None, keep_s: float) -> tuple[Version, list[RelationId]]:
    """Commit the new horizon. From then on a read below it is refused, and only then may files go."""
    catalog = context.catalog
    for _ in range(20):
        with catalog.reading() as connection:
            now = catalog.clock()
            newest = reads.current_version(connection)
            by_time = history.newest_until(connection, now - int(keep_s * 1e6))
            horizon = plan_horizon(newest, by_time, oldest_needed(connection, now))
            wanted = None if name is None else reads.relation(connection, name).id
            before = relation_rows.horizons(connection, wanted)
            own = horizons(list(before), horizon, least_read(connection))
            oldest = leftovers.oldest(connection, horizon)
        # A dropped relation's horizon is its end, and its runs go once the horizon of all has come that far.
        due = [r for r, to in own.items() if before[r] <= to and oldest.get(r, FOREVER) <= to]
        targets = list(before)
        if not due:
            return horizon, targets
        try:
            catalog.commit(
                c.Decision(
                    reason=f"vacuum up to version {horizon}",
                    requires=(c.NoReaderBelow(version=horizon),),
                    updates=tuple(c.SetHorizon(relation=r, horizon=own[r]) for r in due),
                ),
                node=context.node,
            )
        except ConflictError:
            continue  # a reader came between; look again
        return horizon, targets
    return Version(0), []


def sweep(context: Context, relations: Sequence[RelationId] | None = None) -> tuple[int, int, int]:
    """Delete files that the manifest does not name and no open transaction owns: count, bytes, orphans.

    The listing comes first and the catalog second. A file that was listed and whose transaction is still open is
    still being written; one whose transaction committed is named by then; any other can never be read. A relation of
    which copies are being made is left for the next sweep. Roots of nodes that left are swept, too, while they name
    their nodes; a root that does not is left alone: it is another's by now, or its disk is gone.
    """
    wanted = None if relations is None else {f"r{r}" for r in relations}
    with context.catalog.reading() as connection:
        members = topology.members(connection).values()
    every = context.nodes.of({member.id: member.root for member in members})
    roots = {node: root for node, root in every.items() if root.is_writable}
    listed = {node: root.listing() for node, root in roots.items()}
    with context.catalog.reading() as connection:
        at_work = tx.open_transactions(connection)
        copied = _copied_now(connection)
        named: Mapping[NodeId, set[str]] = {node: reads.named_paths(connection, node) for node in every}
    hit("sweep.read")
    anywhere = set[str]().union(*named.values())
    removed: list[File] = []
    copies: list[File] = []
    for node, entries in listed.items():
        root = roots[node]
        # Files before the folders that they lie in, so that they are counted.
        for path, length, folder in sorted(entries, key=lambda entry: entry[2]):
            number = owner(path)
            inside = path.split("/", 1)[0]
            if number is None or number in at_work or path in named[node] or (wanted and inside not in wanted):
                continue
            if inside in copied:  # under the name of the transaction that wrote it first
                continue
            if folder:
                root.remove_tree(path)
            elif path in anywhere:
                copies.append(File(node, path, length))
            elif root.remove(path):
                removed.append(File(node, path, length))
    removed += _remove_copies(context.catalog, roots, copies)
    owners = [number for file in removed if (number := owner(file.path)) is not None]
    with context.catalog.reading() as connection:
        committed = tx.committed_among(connection, owners)
    return len(removed), sum(file.bytes for file in removed), sum(number not in committed for number in owners)


def _copied_now(connection: Connection) -> set[str]:
    """The folders of relations of which copies are being made."""
    return {f"r{relation}" for relation in tx.copied_now(connection)}


def _remove_copies(catalog: Catalog, roots: Mapping[NodeId, Root], files: Sequence[File]) -> list[File]:
    """Remove copies of runs that only other nodes are said to have; those that were removed.

    Such a copy may be made good at any time, and named. So the catalog is asked once more, and no copy is begun before
    the files are gone.
    """
    removed = []
    for at in range(0, len(files), COPIES_AT_ONCE):
        some = files[at : at + COPIES_AT_ONCE]
        with catalog.writing() as connection:
            copied = _copied_now(connection)
            named = {n: reads.named_paths(connection, n, [f.path for f in some]) for n in {f.node for f in some}}
            for file in some:
                is_kept = file.path in named[file.node] or file.path.split("/", 1)[0] in copied
                if not is_kept and roots[file.node].remove(file.path):
                    removed.append(file)
    return removed
