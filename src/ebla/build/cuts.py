"""Where chunks of a base end.

Theory of operation. The manifest says about how many rows a tablet has. Where all that a batch has left fits one chunk,
no more has to be read. Where a tablet must be cut, the tokens of its rows are read, from its key columns and level
0; rows that are deleted do not count, so that long runs of tombstones are no obstacle. A very large tablet is cut by
what may be expected: tokens are spread evenly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from ebla.base.ids import TabletId
from ebla.catalog import reads
from ebla.model.chunks import cut_evenly, cut_exactly
from ebla.model.relation import DELETED, SPANS_TABLETS, TOKEN, Relation
from ebla.model.snapshot import Snapshot
from ebla.storage import runs as rf
from ebla.tables.context import Context
from ebla.values import token

EXACT_ROWS_MAX = 2_000_000
"""A tablet of at most this many rows is cut by the tokens that it has; a larger one by what may be expected."""


class Cuts:
    """Answers for one chunk; a new one is made for the next, because rows come and go."""

    def __init__(self, context: Context, base: Relation) -> None:
        self._context = context
        self._base = base
        with context.catalog.reading() as connection:
            self._snapshot = reads.snapshot(connection, base)

    def rows(self, tablet: TabletId) -> int:
        """About how many rows a tablet has. Level 0 is spread evenly over the tablets that it spans."""
        own = sum(r.rows for r in self._snapshot.level1 if r.tablet == tablet)
        own += sum(r.rows - r.tombstones for r in self._snapshot.level0 if r.tablet == tablet)
        spread = sum(r.rows - r.tombstones for r in self._snapshot.level0 if r.tablet == SPANS_TABLETS)
        return own + -(-spread // self._base.tablets)

    def fits(self, tablets: Sequence[TabletId], rows_max: int) -> bool:
        """Whether a whole batch is one chunk, so that no more has to be read."""
        return sum(map(self.rows, tablets)) <= rows_max

    def evenly(self, tablet: TabletId, after: str | None, rows_max: int) -> tuple[str | None, int]:
        span = token.token_range(tablet, self._base.tablets)
        return cut_evenly(span, after, self.rows(tablet), rows_max)

    def exactly(self, tablet: TabletId, after: str | None, rows_max: int) -> tuple[str | None, int]:
        if self.rows(tablet) > EXACT_ROWS_MAX or any(
            r.schema_version != self._base.schema_version for r in self._snapshot.level1 if r.tablet == tablet
        ):
            return self.evenly(tablet, after, rows_max)
        return cut_exactly(self._tokens(tablet), after, rows_max)

    def _tokens(self, tablet: TabletId) -> list[int]:
        """The sorted tokens of a tablet's rows: of its files, without those that level 0 replaced, and of level 0."""
        with self._context.catalog.reading() as connection:
            snapshot = reads.snapshot(connection, self._base, self._snapshot.version, [tablet])
        roots = self._context.roots()
        changed = rf.mutations(self._base, snapshot.level0, roots, self._context.cache, snapshot)
        replaced = changed[TOKEN].to_numpy()
        mine = token.tablets_of(replaced, self._base.tablets) == tablet
        gone = pc.fill_null(changed[DELETED], False).to_numpy(zero_copy_only=False)
        standing = np.setdiff1d(self._of_files(snapshot), replaced)
        found: list[int] = np.union1d(standing, replaced[mine & ~gone]).tolist()
        return found

    def _of_files(self, snapshot: Snapshot) -> np.ndarray:
        roots = self._context.roots()
        copies = rf.require_copies(snapshot, roots)
        names = [k.physical for k in self._base.key]
        parts = []
        for run in snapshot.level1:
            read = roots[copies[run.id]].open_parquet(run.path).read(columns=names)
            parts.append(token.tokens(rf.align(read, self._base.key), names))
        return np.concatenate(parts) if parts else np.array([], np.int64)
