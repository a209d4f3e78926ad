"""The part of its base that an unfinished view knows, and reading the base as if there were no other rows.

Theory of operation. A view that is not driven by its base (`ebla.algebra.build_method`) is built over a growing part of
the base. Let R be what is covered: in each tablet all rows up to a position. At version *t* the view is its query over
the base restricted to R, wherever the base is mentioned, and all of every other input, at *t*. So an epoch between two
chunks is an ordinary epoch that sees R alone, and a chunk C is one, too: nothing changes but the base, which goes from
R to R and C. Whatever follows changes (sums added, groups computed again, differences) follows chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ebla.base.ids import Token, Version
from ebla.catalog import reads
from ebla.model import segments as sg
from ebla.model.chunks import Covered, Stretch, spans
from ebla.model.relation import Relation
from ebla.model.tablets import TokenRange
from ebla.spark import scan as sscan
from ebla.tables import scans
from ebla.tables.chunk_scan import tokens_of, within
from ebla.tables.read_access import ReadAccess
from ebla.values import token, types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What an epoch sees of one input: the rows in `covered` as they were and are, and those in `added` as they are."""

    table: str
    covered: tuple[Stretch, ...]
    added: tuple[Stretch, ...] = ()

    @property
    def after(self) -> tuple[Stretch, ...]:
        """What is known behind the epoch, one stretch for each range: a chunk begins where the range was left."""
        found: dict[TokenRange, Stretch] = {}
        for stretch in (*self.covered, *self.added):
            before = found.get(stretch.tokens)
            found[stretch.tokens] = (
                stretch if before is None else replace(before, up_to=stretch.up_to, rows=before.rows + stretch.rows)
            )
        return tuple(found.values())

    @property
    def rows(self) -> int:
        """How many rows of the input the view knows behind the epoch, about."""
        return sum(stretch.rows for stretch in (*self.covered, *self.added))

    @property
    def rows_added(self) -> int:
        """At least one where there is a chunk: rows may have come since they were counted."""
        return max(1, sum(stretch.rows for stretch in self.added)) if self.added else 0


def covered_stretches(covered: Covered) -> tuple[Stretch, ...]:
    """What segments cover, as stretches."""
    return tuple(
        Stretch(tokens=tokens, after=None, up_to=segments[-1].up_to, rows=sg.rows(segments))
        for tokens, segments in sorted(covered.items())
        if segments
    )


def region_of_tokens(base: Relation, first: int, last: int) -> Region:
    """A range of tokens of a relation, of which nothing changes."""
    tokens = TokenRange(Token(first), Token(last))
    return Region(table=base.name.lower(), covered=(Stretch(tokens=tokens, after=None, up_to=None, rows=0),))


def base_rows(
    context: ReadAccess, base: Relation, version: Version, stretches: Sequence[Stretch], *, hidden: bool = False
) -> DataFrame:
    """The rows of these stretches at a version, under the names that users know."""
    with context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, base, version, tokens_of(stretches))
    ranges = spans(stretches)
    if snapshot.is_just(ranges):
        return scans.frame_of(context, snapshot, hidden=hidden)
    frame = scans.frame_of(context, snapshot, hidden=hidden or base.keyless)
    frame = frame.filter(within([k.name for k in base.key], ranges))
    return frame if hidden or not base.keyless else frame.select(*[sscan.quoted(col.name) for col in base.visible])


def inside(rows: pa.Table, base: Relation, stretches: Sequence[Stretch]) -> pa.Table:
    """The rows that lie in some stretches; all have the base's key among their columns."""
    if rows.num_rows == 0:
        return rows
    names = [k.name for k in base.key]
    keys = rows.select(names).cast(pa.schema([pa.field(k.name, types.to_arrow(k.type)) for k in base.key]))
    tokens = token.tokens(keys, names)
    kept = np.zeros(rows.num_rows, dtype=bool)
    for first, last in spans(stretches):
        kept |= (tokens >= first) & (tokens <= last)
    return rows if kept.all() else rows.filter(pa.array(kept))
