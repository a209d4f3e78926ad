"""What following a change gives: rows that come to a view and rows that go, or that the view is to be computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ebla.relations.views import View
from ebla.storage.reserve import Reserve
from ebla.storage.rows import difference, stored_rows, without_keys
from ebla.views.epoch.mutations import arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows to write, and stored rows, or their keys, to delete. Columns have the names that users know."""

    gained: pa.Table
    doomed: pa.Table
    compared: int = 0
    """How many rows of the view were computed or looked at."""
    reserve: Reserve | None = None
    """Of a view that shows first rows, those to keep when these rows are committed."""

    @property
    def is_empty(self) -> bool:
        return not (self.gained.num_rows or self.doomed.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """The change is not followed. `failed`: what stopped an attempt to follow it, and may know the row."""

    reason: str
    failed: Exception | None = None


def no_rows(view: View) -> pa.Table:
    """What the view's query gives for nothing."""
    return arrow_schema(view.relation, [col.name for col in view.columns]).empty_table()


def unchanged(view: View) -> Rows:
    return Rows(gained=no_rows(view), doomed=no_rows(view))


def exchanged(view: View, new: pa.Table, old: pa.Table) -> Rows:
    """The difference between the rows that should be there and those that are, hidden ids and all."""
    names = [col.name for col in view.columns]
    gained, lost = difference(new, old.select(names))
    if view.relation.keyless:
        doomed = stored_rows(old, lost, names)
    else:
        doomed = without_keys(lost, gained, [k.name for k in view.relation.key])
    return Rows(gained=gained, doomed=doomed, compared=max(new.num_rows, old.num_rows))


def together(view: View, found: Sequence[Rows]) -> Rows:
    """The rows of several parts of a view that has a key."""
    schema = arrow_schema(view.relation, [col.name for col in view.relation.columns])

    def concat(tables: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([schema.empty_table(), *(t.select(schema.names).cast(schema) for t in tables)])

    return Rows(
        gained=concat([one.gained for one in found]),
        doomed=concat([one.doomed for one in found]),
        compared=sum(one.compared for one in found),
    )
