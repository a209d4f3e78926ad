"""What an epoch reads of its inputs: changed rows, and rows by values of some columns, old and new.

The views of one round share what they read. Each input's changes are found once, each lookup is made once with the
columns that all of them need, and every view takes its own part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebla.algebra.nodes import Column
from ebla.base.ids import Version
from ebla.model.relation import Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.storage.rows import TooLarge, difference, matching
from ebla.tables import scans
from ebla.tables.read_access import ReadAccess
from ebla.tables.value_lookup import rows_by
from ebla.views.epoch.expressions import evaluated_here, rows_here
from ebla.views.epoch.input_rows import as_it_was, digest, few_rows
from ebla.views.epoch.key_changes import old_rows_cost_more
from ebla.views.epoch.mutations import NEW, OLD, SIDE, Mutations, arrow_schema, of_side, runs_since
from ebla.views.epoch.narrow import State
from ebla.views.epoch.region import Region, base_rows, inside
from ebla.views.epoch.round import Round

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection


def unchanged(
    context: ReadAccess,
    relations: Mapping[str, Relation],
    now: Mapping[str, Snapshot],
    used: Mapping[str, frozenset[str]],
    settings: Mapping[str, str],
    round_: Round | None = None,
) -> Inputs:
    """The inputs of a view in which nothing changed: its query is run, and nothing is followed."""
    return Inputs(
        round=round_ or Round(context),
        relations=relations,
        before=dict.fromkeys(relations),
        now=now,
        used=used,
        rows_max=context.settings.batch_rows_max,
        settings=settings,
    )


@dataclass(kw_only=True)
class Inputs:
    """The inputs of one view's epoch: each relation as it was read before, and now."""

    round: Round
    relations: Mapping[str, Relation]
    before: Mapping[str, Version | None]
    now: Mapping[str, Snapshot]
    used: Mapping[str, frozenset[str]]
    rows_max: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the session in which the view was created."""
    region: Region | None = None
    """Of one input the view knows only a part: it is being built. Everything here is as if there were no more."""
    _writes: dict[str, list[Run]] = field(default_factory=dict)
    _changes: dict[str, tuple[pa.Table, pa.Table]] = field(default_factory=dict)
    _keys_alone: set[str] = field(default_factory=set)
    """Inputs of whose changes only the keys are known, and the new rows."""

    @property
    def context(self) -> ReadAccess:
        return self.round.context

    @property
    def read_max(self) -> int:
        """How many rows may be brought to the driver for one lookup."""
        return 4 * self.rows_max

    def columns(self, table: str) -> list[str]:
        """The columns of an input that the view uses, and its key."""
        relation = self.relations[table]
        used = self.used.get(table, frozenset()) | {k.name for k in relation.key}
        return [col.name for col in relation.columns if col.name in used]

    def frame(self, table: str, state: State = State.NEW, *, hidden: bool = False) -> DataFrame:
        """All rows of an input that the view may see, as they were or are."""
        relation, snapshot, before = self.relations[table], self.now[table], self.before[table]
        if state is State.OLD and before is not None:
            with self.context.catalog.reading() as connection:
                snapshot = self.round.snapshot(connection, relation, before)
        region = self.region_of(table)
        if region is None:
            return scans.frame_of(self.context, snapshot, hidden=hidden)
        parts = region.covered if state is State.OLD else region.after
        return base_rows(self.context, relation, snapshot.version, parts, hidden=hidden)

    def added(self, table: str) -> DataFrame | None:
        """The rows, hidden columns too, that the view sees for the first time, as they are; `None`: there are none."""
        region = self.region_of(table)
        if region is None or not region.added:
            return None
        return base_rows(self.context, self.relations[table], self.now[table].version, region.added, hidden=True)

    def versions(self) -> dict[str, int]:
        """The version of each input at the epoch."""
        return {n: int(now.version) for n, now in self.now.items()}

    def region_of(self, table: str) -> Region | None:
        return self.region if self.region is not None and self.region.table == table else None

    def size(self, table: str) -> int:
        """How many rows the view may see, about."""
        region = self.region_of(table)
        return self.now[table].rows_at_most if region is None else region.rows

    # ---- changes ----------------------------------------------------------------------------------------

    def writes(self, table: str) -> list[Run]:
        """The runs that hold what changed; raises if they cannot tell."""
        if table not in self._writes:
            with self.context.catalog.reading() as connection:
                self._writes[table] = self._find_writes(connection, table)
        return self._writes[table]

    def read_ahead(self, connection: Connection) -> None:
        """Read of the catalog what following the inputs needs, in the transaction that has read their snapshots."""
        for table, since in self.before.items():
            if since is None or since >= self.now[table].version:
                continue
            try:
                self._writes[table] = self._find_writes(connection, table)
            except TooLarge:
                continue  # the plan that needs the writes asks again, and says why there are none
            if self._writes[table]:
                self.round.snapshot(connection, self.relations[table], since)

    def _find_writes(self, connection: Connection, table: str) -> list[Run]:
        since = self.before[table]
        if since is None:
            raise TooLarge("the view is not built yet")
        return runs_since(connection, table, self.relations[table], since, self.now[table].version)

    def written(self, table: str) -> int:
        """How many rows were written, or are seen for the first time: at least as many as changed."""
        region = self.region_of(table)
        return sum(run.rows for run in self.writes(table)) + (0 if region is None else region.rows_added)

    def may_have_changed(self, table: str) -> bool:
        try:
            return self.written(table) > 0
        except TooLarge:
            return True

    def changed_inputs(self) -> list[str]:
        """Inputs with a change in a column that the view uses."""
        return [t for t in self.relations if any(side.num_rows for side in self.sides(t))]

    def changed(self, table: str) -> pa.Table:
        """New and old rows of the keys that changed; of an input that is taken by its keys, those that were written."""
        if table in self._keys_alone:
            return self._mutations(table).new().select([k.name for k in self.relations[table].key])
        return pa.concat_tables(self.sides(table))

    def take_keys_alone(self, table: str) -> bool:
        """Take an input's change by its keys alone from now on, if that is cheaper; whether it is
        (`views.epoch.key_changes`)."""
        if table in self._keys_alone:
            return True
        if table in self._changes or self.region_of(table) is not None or self.written(table) > self.rows_max:
            return False
        mutations = self._mutations(table)
        if not old_rows_cost_more(self.context.settings, mutations.before(), self.written(table)):
            return False
        if any(side.num_rows for side in self._differing(table, mutations.both_of_few())):
            self._keys_alone.add(table)
        return table in self._keys_alone

    def sides(self, table: str) -> tuple[pa.Table, pa.Table]:
        """New and old rows of the keys that changed, as far as the view sees them: gained, lost."""
        assert table not in self._keys_alone, f"{table}: what its rows were is not known"
        if table not in self._changes:
            gained, lost = self._written_sides(table)
            region = self.region_of(table)
            if region is not None:
                gained, lost = (inside(rows, self.relations[table], region.covered) for rows in (gained, lost))
            came = self.added(table)
            if came is not None:
                added = few_rows(self.relations[table], came, self.columns(table), most=self.rows_max)
                gained = pa.concat_tables([gained, added])
            self._changes[table] = gained, lost
        return self._changes[table]

    def _written_sides(self, table: str) -> tuple[pa.Table, pa.Table]:
        names = self.columns(table)
        runs = self.writes(table)
        if not runs:
            nothing = arrow_schema(self.relations[table], names).empty_table()
            return nothing, nothing
        if sum(r.rows for r in runs) > self.rows_max:
            raise TooLarge(f"{sum(r.rows for r in runs)} changed rows of {table}")
        return self._differing(table, self._mutations(table).both())

    def _differing(self, table: str, both: pa.Table) -> tuple[pa.Table, pa.Table]:
        names = self.columns(table)
        return difference(of_side(both, NEW).select(names), of_side(both, OLD).select(names))

    def _span(self, table: str) -> tuple[object, ...]:
        """What tells an input's changes from those of others, and from those that other views read."""
        return self.relations[table].id, self.before[table], self.now[table].version

    def _mutations(self, table: str) -> Mutations:
        since = self.before[table]
        assert since is not None
        return Mutations(
            round=self.round,
            relation=self.relations[table],
            since=since,
            now=self.now[table],
            runs=self.writes(table),
            used=self.used.get(table, frozenset()),
        )

    # ---- lookups ----------------------------------------------------------------------------------------

    def lookup(
        self, table: str, by: Sequence[Column], values: pa.Table, columns: Sequence[str] | None, state: State
    ) -> pa.Table:
        wanted = self.columns(table) if columns is None else list(columns)
        relation = self.relations[table]
        if values.num_rows == 0:
            return arrow_schema(relation, wanted).empty_table()
        stored = [name for name in by if isinstance(name, str)]
        if len(stored) < len(by):
            session = self.context.view_session(self.settings, small=False)
            frame = self.frame(table, state, hidden=True)
            return rows_here(session, relation, frame, by, values, wanted, most=self.read_max)
        found = self._stored_rows(table, stored, values, state)
        # Whole rows may have columns that only other views need: so all of them get the same table, and one DataFrame.
        return found if columns is None else found.select(wanted)

    def evaluated(self, table: str, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
        session = self.context.view_session(self.settings, small=True)
        return evaluated_here(session, self.relations[table], rows, columns)

    def _stored_rows(self, table: str, by: Sequence[str], values: pa.Table, state: State) -> pa.Table:
        relation, now = self.relations[table], self.now[table]
        names = self.round.columns(relation, self.used.get(table, frozenset()))
        key = ("rows", relation.id, self.before[table], now.version, tuple(by), digest(values))
        found: pa.Table = self.round.once(key, lambda: self._rows(table, by, values, names))
        region = self.region_of(table)
        if region is not None:
            found = inside(found, relation, region.after)
        if state is State.OLD and any(side.num_rows for side in self.sides(table)):
            with contextlib.closing(self.context.duck()) as cursor:
                mine = found.select(self.columns(table))
                found = as_it_was(cursor, relation, self.sides(table), by, values, mine)
        if found.num_rows > self.read_max:
            raise TooLarge(f"{found.num_rows} rows of {table} to read")
        return found

    def _rows(self, table: str, by: Sequence[str], values: pa.Table, names: Sequence[str]) -> pa.Table:
        """Today's rows. Those of keys that were just written, or found by other columns, are not read again."""
        relation, now = self.relations[table], self.now[table]
        if set(by) != {k.name for k in relation.key}:
            found = rows_by(self.context, now, by, values, names, most=self.read_max)
            self.round.remember(self._span(table), found)
            return found
        written = self._written_rows(table)
        sources = [rows for rows in self.round.remembered(self._span(table)) if set(names) <= set(rows.schema.names)]
        parts: list[pa.Table] = []
        left = values
        cursor = self.context.duck()
        try:
            if written is not None:
                parts.append(matching(cursor, of_side(written, NEW).select(list(names)), by, left))
                settled = written.filter(pc.not_equal(written[SIDE], OLD)).select(list(by))
                left = matching(cursor, left, left.schema.names, settled, negated=True)
            for rows in sources:
                parts.append(matching(cursor, rows.select(list(names)), by, left))
                left = matching(cursor, left, left.schema.names, rows.select(list(by)), negated=True)
        finally:
            cursor.close()
        if left.num_rows or not parts:
            parts.append(rows_by(self.context, now, by, left, names, most=self.read_max))
        return pa.concat_tables(parts)

    def _written_rows(self, table: str) -> pa.Table | None:
        """What was written since the view last read the input, if that is known already and has all columns."""
        if table in self._keys_alone:
            return self._mutations(table).new()
        if not any(side.num_rows for side in self._changes.get(table, ())) or not self.writes(table):
            return None
        return self._mutations(table).both()
