"""Where chunks of a base end.

Theory of operation. The manifest says about how many rows a tablet has. Where all that a batch has left fits one chunk,
no more has to be read. Where a tablet must be cut, the tokens of its rows are read, from its key columns and level
0; rows that are deleted do not count, so that long runs of tombstones are no obstacle. A very large tablet is cut by
what may be expected: tokens are spread evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.model.chunks import cut_evenly, cut_exactly
from ebla.model.relation import DELETED, TOKEN, Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import TokenRange
from ebla.storage import runs as rf
from ebla.storage.node_storage import NodeStorage
from ebla.values import token

EXACT_ROWS_MAX = 2_000_000
"""A tablet of at most this many rows is cut by the tokens that it has; a larger one by what may be expected."""


class Cuts:
    """Answers for one chunk; a new one is made for the next, because rows come and go."""

    def __init__(self, catalog: Catalog, storage: NodeStorage, base: Relation) -> None:
        self._catalog = catalog
        self._storage = storage
        self._base = base
        with catalog.reading() as connection:
            self._snapshot = reads.snapshot(connection, base)

    def rows(self, tokens: TokenRange) -> int:
        """About how many rows a range has. Rows are spread evenly over the tokens of their run."""
        found = sum(r.rows * _shared(r, tokens) for r in self._snapshot.level1)
        found += sum((r.rows - r.tombstones) * _shared(r, tokens) for r in self._snapshot.level0)
        return math.ceil(found)

    def fits(self, ranges: Sequence[TokenRange], rows_max: int) -> bool:
        """Whether a whole batch is one chunk, so that no more has to be read."""
        return sum(map(self.rows, ranges)) <= rows_max

    def evenly(self, tokens: TokenRange, after: str | None, rows_max: int) -> tuple[str | None, int]:
        return cut_evenly(tokens, after, self.rows(tokens), rows_max)

    def exactly(self, tokens: TokenRange, after: str | None, rows_max: int) -> tuple[str | None, int]:
        if self.rows(tokens) > EXACT_ROWS_MAX or any(
            r.schema_version != self._base.schema_version for r in self._snapshot.level1 if r.tokens.overlaps(tokens)
        ):
            return self.evenly(tokens, after, rows_max)
        return cut_exactly(self._tokens(tokens), after, rows_max)

    def _tokens(self, tokens: TokenRange) -> list[int]:
        """The sorted tokens of a range's rows: of its files, without those that level 0 replaced, and of level 0."""
        with self._catalog.reading() as connection:
            snapshot = reads.snapshot(connection, self._base, self._snapshot.version, [tokens])
        roots = self._storage.nodes.all()
        changed = rf.mutations(self._base, snapshot.level0, roots, self._storage.level0, snapshot)
        replaced = changed[TOKEN].to_numpy()
        gone = pc.fill_null(changed[DELETED], False).to_numpy(zero_copy_only=False)
        standing = np.setdiff1d(self._of_files(snapshot), replaced)
        found = np.union1d(standing, replaced[~gone])
        inside: list[int] = found[(found >= tokens.first) & (found <= tokens.last)].tolist()
        return inside

    def _of_files(self, snapshot: Snapshot) -> np.ndarray:
        roots = self._storage.nodes.all()
        copies = rf.require_copies(snapshot, roots)
        names = [k.physical for k in self._base.key]
        parts = []
        for run in snapshot.level1:
            read = roots[copies[run.id]].open_parquet(run.path).read(columns=names)
            parts.append(token.tokens(rf.align(read, self._base.key), names))
        return np.concatenate(parts) if parts else np.array([], np.int64)


def _shared(run: Run, tokens: TokenRange) -> float:
    """How much of a run's tokens lies in a range, 0 to 1."""
    return max(0, min(run.token_max, tokens.last) - max(run.token_min, tokens.first) + 1) / run.tokens.width
