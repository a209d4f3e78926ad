"""Changes taken by their keys: when an epoch need not know what the rows were that a write replaced.

A write says which keys it wrote, and their new rows. What those rows were is a lookup in the input, and one of many
keys that lie far apart reads the input from end to end: its price follows the table, not the change. A plan by scope
needs it only where the values that name the affected rows are no part of the input's key. Otherwise old rows serve for
one thing alone, to leave out rows that were written and are as they were, in all that the view uses.

So such a lookup is not made where it costs much beside computing every written row. A few of the keys, which lie next
to each other, are looked up first: if none of those rows changed in what the view uses, probably no row did, and all
are read after all, so that a change that the view does not use changes nothing. If one did, most of them probably did:
then the lookup would save little, and what is computed in vain is at most what was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ebla.algebra.follow import ChangedValues, LookupValues, PickedValues, Scope, Values, ValueUnion, WithoutNull
from ebla.algebra.plan import IncrementalPlan
from ebla.base.settings import Settings
from ebla.model.relation import TOKEN
from ebla.model.snapshot import Snapshot
from ebla.storage import runs as rf
from ebla.tables.level0 import on_driver
from ebla.values import token as tokens

ROWS_PER_KEY_MAX = 50
"""Reading this many rows takes a tenth of the time that computing and writing one row of a view takes."""
ROWS_MIN = 1_000_000
"""Fewer rows are read in a moment."""
GROUP_ROWS = 400_000
"""Rows of a row group, about: what one key alone makes a lookup read."""
SOME_KEYS = 32


def needs_keys_alone(made: IncrementalPlan, table: str, key: Sequence[str]) -> bool:
    """Whether the plan takes nothing of an input's changed rows but columns of its key."""
    starts = [one for way in made.affected for one in _starts(way.values) if one.table == table]
    return all(set(one.columns) <= set(key) for one in starts)


def _starts(values: Values) -> Iterator[ChangedValues]:
    match values:
        case ChangedValues():
            yield values
        case LookupValues(source=source) | PickedValues(source=source) | WithoutNull(source=source):
            yield from _starts(source)
        case ValueUnion(sources=sources):
            for source in sources:
                yield from _starts(source)
        case Scope():
            pass


def costs_more(stored: int, written: int) -> bool:
    """Whether to look up this many keys among this many sorted rows costs more than it probably saves."""
    return min(stored, written * GROUP_ROWS) > max(ROWS_MIN, written * ROWS_PER_KEY_MAX)


def old_rows_cost_more(settings: Settings, old: Snapshot, written: int) -> bool:
    """Whether this many written keys are better taken alone than looked up in the input as it was, on the driver."""
    return costs_more(sum(run.rows for run in old.level1), written) and on_driver(settings, old)


def neighbours(mutations: pa.Table, key: Sequence[str], tablets: int) -> pa.Table:
    """A few of the mutations, whose keys lie next to each other in the first tablet: a lookup of them reads little."""
    if mutations.num_rows == 0:
        return mutations
    places = tokens.tablets_of(mutations.column(TOKEN).to_numpy(), tablets)
    first = mutations.take(pa.array(np.flatnonzero(places == places.min())))
    order = rf.in_order(first, [(name, False) for name in key])
    return first.take(order[:SOME_KEYS])
