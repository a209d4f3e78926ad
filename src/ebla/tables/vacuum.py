"""Vacuum forgets old versions: it moves the horizon, sweeps files, and trims the catalog's history."""

from __future__ import annotations

from dataclasses import dataclass

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, Version
from ebla.base.settings import Settings
from ebla.catalog import audit, history, leftovers
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import UsageError
from ebla.relations.views import progress_name
from ebla.storage.roots import Roots
from ebla.tables.horizon import advance
from ebla.tables.sweep import sweep

REMEMBER_S = 3600.0
"""Commits and transactions are known for so long at least: a commit whose answer was lost is looked for by its id."""
TRIMMED_AT_ONCE = 10_000
RETENTION_S_MAX = 100 * 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumResult:
    horizon: Version
    relations: int
    files: int
    bytes: int
    orphans: int


def vacuum(
    catalog: Catalog,
    node: NodeId,
    nodes: Roots,
    settings: Settings,
    name: str | None = None,
    *,
    retain_s: float | None = None,
) -> VacuumResult:
    """Forget old versions, delete their files, and sweep files that no commit ever named."""
    tx.reap(catalog)
    keep_s = settings.retention_s if retain_s is None else retain_s
    if not 0 <= keep_s <= RETENTION_S_MAX:
        raise UsageError(f"retention: expected 0 to {RETENTION_S_MAX:.0f} seconds, found {keep_s:.0f}")
    horizon, targets = advance(catalog, node, name, keep_s)
    hit("vacuum.horizon_set")
    removed, size, orphans = sweep(catalog, nodes, targets if name is not None else None)
    long_ago = catalog.clock() - int(max(keep_s, REMEMBER_S) * 1e6)
    tx.forget_ended(catalog, long_ago)
    if name is None:
        _trim(catalog, horizon, long_ago)
        audited = catalog.clock() - int(settings.audit_retention_s * 1e6)
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
