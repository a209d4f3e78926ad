"""What was written to one input between two versions: keys, with their rows as they are and as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model.relation import DELETED, Column, Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.storage import runs as rf
from ebla.storage.rows import TooLarge
from ebla.tables.value_lookup import replaced_rows
from ebla.values import types
from ebla.views.epoch.key_changes import neighbours
from ebla.views.epoch.round import Round

if TYPE_CHECKING:
    from sqlalchemy import Connection

SIDE = "_ebla_side"
NEW, OLD, GONE = 1, 0, -1
"""Sides of written keys: the rows as they are, as they were, and keys that have no row any more."""


def column_of(relation: Relation, name: str) -> Column:
    found = relation.column(name)
    assert found is not None, (relation.name, name)
    return found


def arrow_schema(relation: Relation, names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(n, types.to_arrow(column_of(relation, n).type)) for n in names])


def runs_since(connection: Connection, table: str, relation: Relation, since: Version, until: Version) -> list[Run]:
    """The runs that hold what was written to an input after a version; raises if they do not hold all of it."""
    if since < until and since < reads.horizon(connection, relation):
        raise TooLarge(f"the changes of {table} since version {since} were vacuumed")
    if reads.truncated_between(connection, relation, since, until):
        raise TooLarge(f"{table} was truncated")
    return reads.writes_between(connection, relation, since, until)


def of_side(rows: pa.Table, side: int) -> pa.Table:
    return rows.filter(pc.equal(rows[SIDE], side))


def _marked(rows: pa.Table, side: int) -> pa.Table:
    return rows.append_column(SIDE, pa.array([side] * rows.num_rows, pa.int8()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutations:
    """Rows have the columns that any view of the round needs, and a mark of their side; each is read once a round."""

    round: Round
    relation: Relation
    since: Version
    now: Snapshot
    runs: Sequence[Run]
    used: frozenset[str]
    """The columns that this view needs."""

    @property
    def span(self) -> tuple[object, ...]:
        """What tells these mutations from those of other inputs, and from those that other views read."""
        return self.relation.id, self.since, self.now.version

    def before(self) -> Snapshot:
        with self.round.context.catalog.reading() as connection:
            return self.round.snapshot(connection, self.relation, self.since)

    def both(self) -> pa.Table:
        """Rows of all keys, new and old, and the keys that have none any more."""
        found: pa.Table = self.round.once(("both", *self.span), lambda: self._both(self._latest()))
        return found

    def both_of_few(self) -> pa.Table:
        """The same of a few keys that lie next to each other."""
        key = [k.physical for k in self.relation.key]
        found: pa.Table = self.round.once(
            ("few", *self.span), lambda: self._both(neighbours(self._latest(), key, self.relation.tablets))
        )
        return found

    def new(self) -> pa.Table:
        """Rows of all keys as they are, and the keys that have none any more."""
        found: pa.Table = self.round.once(("new", *self.span), lambda: self._new(self._latest()))
        return found

    def _latest(self) -> pa.Table:
        """The last mutation of each key."""
        context = self.round.context
        roots = context.nodes.of(self.now.roots)
        found: pa.Table = self.round.once(
            ("latest", *self.span), lambda: rf.mutations(self.relation, self.runs, roots, context.storage.level0)
        )
        return found

    def _both(self, latest: pa.Table) -> pa.Table:
        names = self.round.columns(self.relation, self.used)
        old = replaced_rows(self.round.context, self.before(), latest, names)
        return pa.concat_tables([self._new(latest), _marked(old, OLD)], promote_options="default")

    def _new(self, latest: pa.Table) -> pa.Table:
        relation, names = self.relation, self.round.columns(self.relation, self.used)
        deleted = pc.fill_null(latest[DELETED], False)
        physical = [column_of(relation, n).physical for n in names]
        alive = latest.filter(pc.invert(deleted)).select(physical)
        gained = alive.rename_columns(names).cast(arrow_schema(relation, names))
        dead = latest.filter(deleted).select([k.physical for k in relation.key])
        dead = dead.rename_columns([k.name for k in relation.key])
        return pa.concat_tables([_marked(gained, NEW), _marked(dead, GONE)], promote_options="default")
