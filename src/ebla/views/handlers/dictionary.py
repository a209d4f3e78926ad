"""The job `sys$dictionary`: what changed in inputs that are read as BATCH, and which views that concerns.

Gathering compares each commit with the version before it, key by key, from the runs alone: no Spark job. Keys and
changed columns are logged in one commit with the position up to which they are complete. Commit by commit, not from one
gathering to the next: a view may stand at any version between, and a value that changed there and back is different
for it.

The log only says whether a view is concerned. What its rows become, its refresh finds out from the versions themselves
(`ebla.views.handlers.refreshes`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlalchemy import Connection

from ebla.algebra.nodes import NotUnderstood
from ebla.algebra.shape import understood
from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.model import changes as c
from ebla.model.handlers import DICTIONARY, EVERYTHING, BatchInput, Handler, advanced, held, touches
from ebla.model.refresh import Refresh
from ebla.model.relation import DELETED, FOREVER, Kind, Relation, Run
from ebla.relations.readers import least_read, readers
from ebla.relations.stored_values import read_text
from ebla.relations.views import Position as ViewStanding
from ebla.relations.views import View, moved, unmoved
from ebla.storage import runs as rf
from ebla.tables.context import Context
from ebla.tables.value_lookup import replaced_rows
from ebla.values import types
from ebla.values.columns import python_rows
from ebla.views.epoch.attempt import Target

LOG_ROWS_MAX = 10_000
"""A commit that changed more rows than this is logged as one that may have changed any."""

ANY_ROW = "null"


# ---- the gatherer's position ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredRange:
    """The log of an input holds every change in `(since, until]`."""

    since: Version
    until: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    inputs: Mapping[RelationId, GatheredRange] = field(default_factory=dict)
    stored: str | None = None

    @classmethod
    def load(cls, connection: Connection) -> Position:
        text = reads.progress(connection, DICTIONARY)
        found = read_text(dict[RelationId, tuple[Version, Version]], text or "{}")
        inputs = {one: GatheredRange(since=since, until=until) for one, (since, until) in found.items()}
        return cls(inputs=inputs, stored=text)

    def text(self) -> str:
        return json.dumps({str(i): [g.since, g.until] for i, g in sorted(self.inputs.items())})


# ---- gathering ------------------------------------------------------------------------------------------


def gather(context: Context) -> int:
    """Log what dictionaries changed; how many rows. Repeats until everything committed before is logged."""
    logged = 0
    while True:
        done, more = _gather(context)
        logged += done
        if not more:
            return logged


def _gather(context: Context) -> tuple[int, bool]:
    with context.catalog.reading() as connection:
        newest = reads.current_version(connection)
        before = Position.load(connection)
        least = least_read(connection)
        relations = {i: reads.relation_by_id(connection, i) for i in least}
    inputs = {i: g for i, g in before.inputs.items() if i in least}
    rows: list[c.DictionaryChange] = []
    more = False
    for number, read in least.items():
        relation = relations[number]
        if relation is None or read is None:
            continue
        entry = inputs.get(number, GatheredRange(since=read, until=read))
        if read > entry.until:  # a FLUSH was faster
            entry = GatheredRange(since=read, until=read)
        found, until = _changes(context, relation, entry.until, newest)
        rows += found
        more = more or until < newest
        if found:
            inputs[number] = replace(entry, until=until)
    forgotten, inputs = _forget(context, before, inputs, least)
    after = Position(inputs=inputs)
    if not rows and not forgotten:
        return 0, False  # without news the position stays where it is: an idle dictionary costs no commit
    hit("dictionary.before_commit")
    context.catalog.commit(
        c.Decision(
            reason=f"gather {len(rows)} changes of dictionaries up to version {newest}",
            requires=(c.ProgressIs(name=DICTIONARY, value=before.stored),),
            updates=(
                c.LogDictionaryChanges(changes=tuple(rows)),
                *forgotten,
                c.SetProgress(name=DICTIONARY, value=after.text()),
            ),
        ),
        node=context.node,
    )
    return len(rows), more


def _forget(
    context: Context,
    before: Position,
    inputs: Mapping[RelationId, GatheredRange],
    least: Mapping[RelationId, Version | None],
) -> tuple[list[c.ForgetDictionaryChanges], dict[RelationId, GatheredRange]]:
    """Log rows that every view has done with, and the position without them."""
    kept = dict(inputs)
    found = []
    with context.catalog.reading() as connection:
        for number in before.inputs:
            read = least.get(number) if number in least else Version(FOREVER)
            if read is None:
                continue
            if reads.has_dictionary_changes(connection, number, read):
                found.append(c.ForgetDictionaryChanges(relation=number, version=read))
                if number in kept:
                    kept[number] = replace(kept[number], since=max(kept[number].since, read))
    return found, kept


def _changes(
    context: Context, relation: Relation, since: Version, until: Version
) -> tuple[list[c.DictionaryChange], Version]:
    """Changes of an input behind `since`, and up to which version they were looked for."""
    with context.catalog.reading() as connection:
        if since < relation.horizon:
            return [_any(relation, until)], until
        runs = reads.writes_between(connection, relation, since, until)
        truncated = set(reads.truncated_between(connection, relation, since, until))
    by_version: dict[Version, list[Run]] = {}
    for run in runs:
        by_version.setdefault(run.begin_version, []).append(run)
    found: list[c.DictionaryChange] = []
    for version in sorted({*by_version, *truncated}):
        written = by_version.get(version, [])
        if version in truncated or sum(r.rows for r in written) > LOG_ROWS_MAX:
            found.append(_any(relation, version))
        else:
            found += compare(context, relation, written, version)
        if len(found) > LOG_ROWS_MAX:
            return found, version
    return found, until


def _any(relation: Relation, version: Version) -> c.DictionaryChange:
    return c.DictionaryChange(relation=relation.id, version=version, key=ANY_ROW, columns=(EVERYTHING,))


def compare(context: Context, relation: Relation, runs: Sequence[Run], version: Version) -> list[c.DictionaryChange]:
    """What one commit changed, key by key. A row that is written again as it was is no change."""
    with context.catalog.reading() as connection:
        old = reads.snapshot(connection, relation, Version(version - 1))
    names = [col.name for col in relation.columns]
    key = [k.name for k in relation.key]
    schema = pa.schema([pa.field(col.name, types.to_arrow(col.type)) for col in relation.columns])
    latest = rf.mutations(relation, runs, context.roots(), context.cache)
    was = replaced_rows(context, old, latest, names)
    is_now = latest.select([col.physical for col in relation.columns]).rename_columns(names).cast(schema)
    gone = latest[DELETED].to_pylist()
    before = {tuple(row[k] for k in key): row for row in python_rows(was)}
    found = []
    for row, deleted in zip(python_rows(is_now), gone, strict=True):
        values = tuple(row[k] for k in key)
        columns = changed_columns(before.get(values), None if deleted else row)
        if columns:
            text = json.dumps(list(values), default=str)
            found.append(c.DictionaryChange(relation=relation.id, version=version, key=text, columns=columns))
    return found


def changed_columns(before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> tuple[str, ...]:
    """Names in lower case of the columns whose values differ; all of them for a row that came or went."""
    if before is None or after is None:
        return () if before is after else (EVERYTHING,)
    return tuple(
        n.lower()
        for n, value in after.items()
        if value != before[n] and not (value != value and before[n] != before[n])  # NaN is NaN
    )


# ---- which views have a refresh before them, or are in the middle of one --------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRefresh:
    """A view whose dictionaries have gathered changes. If they do not concern it, only its position moves."""

    view: View
    handler: Handler
    versions: Mapping[str, Version]
    """All of its dictionaries, at the versions to read them at."""
    stream: Version
    concerned: bool
    moved: Mapping[str, Version]
    """Those that have gathered changes."""
    batch: frozenset[str]
    """The names of all of them."""
    standing: Target
    """Where the view stands."""


def batch_inputs(
    connection: Connection, view: View, inputs: Mapping[str, RelationId], gathered: Position
) -> list[BatchInput]:
    found = []
    for name, number in inputs.items():
        read = None if view.position is None else view.position.read.get(name)
        entry = gathered.inputs.get(number)
        found.append(
            BatchInput(
                name=name,
                relation=number,
                read=None if read is None else Version(read),
                gathered=None if entry is None else entry.until,
                horizon=reads.relation(connection, name).horizon,
            )
        )
    return found


def due(connection: Connection, handlers: Iterable[str] | None = None) -> list[DueRefresh]:
    """Views of these handlers, or of all that should run, whose dictionaries have gathered changes."""
    gathered = Position.load(connection)
    newest = reads.current_version(connection)
    wanted = None if handlers is None else set(handlers)
    found = []
    for view, handler, numbers in readers(connection):
        if view.position is None or not view.position.built:
            continue
        if view.position.refresh is not None:
            continue  # one after the other
        if not handler.should_run if wanted is None else handler.name not in wanted:
            continue
        inputs = batch_inputs(connection, view, numbers, gathered)
        moved = advanced(inputs)
        if moved and _may_go(view.position, moved):
            found.append(
                DueRefresh(
                    view=view,
                    handler=handler,
                    versions={**held(inputs, newest), **moved},
                    stream=_stream(connection, view, numbers, newest),
                    concerned=_concerned(connection, view, [i for i in inputs if i.name in moved], gathered),
                    moved=moved,
                    batch=frozenset(numbers),
                    standing=_standing(connection, view, numbers, newest),
                )
            )
    return found


def _may_go(position: ViewStanding, gathered: Mapping[str, Version]) -> bool:
    """What failed on a row fails again, until a dictionary has changed once more."""
    return not position.failed or any(v > position.tried.get(n, 0) for n, v in gathered.items())


def _stream(connection: Connection, view: View, batch: Mapping[str, RelationId], newest: Version) -> Version:
    """Streams stay where the view has read them, unless that version is vacuumed."""
    assert view.position is not None
    streams = [reads.relation(connection, n) for n in view.inputs if n not in batch]
    applied = view.position.applied_version
    return applied if all(r.horizon <= applied for r in streams if r.kind is Kind.TABLE) else newest


def _concerned(connection: Connection, view: View, inputs: Sequence[BatchInput], gathered: Position) -> bool:
    used: Mapping[str, frozenset[str]] | None = None
    try:
        relations = {n: reads.relation(connection, n) for n in view.inputs}
        used = understood(view.query, relations, view.settings).used
    except NotUnderstood:
        pass  # then every column counts
    for one in inputs:
        log = gathered.inputs[one.relation]
        assert one.read is not None
        if one.read < log.since or one.read < one.horizon:
            return True  # the log begins later than the view stands
        changes = reads.dictionary_changes(connection, one.relation, one.read, log.until)
        if touches(changes, None if used is None else used.get(one.name, frozenset())):
            return True
    return False


def move_on(context: Context, due: DueRefresh) -> None:
    """Move the position of a view that does not use what changed."""
    view = due.view
    assert view.position is not None
    position = replace(view.position, read={**view.position.read, **{n: int(v) for n, v in due.moved.items()}})
    context.catalog.commit(
        # Not a commit of the view: nothing that reads it has anything to do.
        c.Decision(
            reason=f"dictionaries of {view.relation.name} changed in columns that it does not use",
            requires=(unmoved(view),),
            updates=moved(view, position),
        ),
        node=context.node,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRefresh:
    """A view in the middle of a refresh."""

    view: View
    handler: Handler
    target: Target
    """Where the view stands."""
    again: bool
    """Whether one of its dictionaries has changed since the refresh began."""
    mended: Target | None = None
    """Of a refresh that failed on a row: the versions with what has changed since, to which it goes in one epoch."""

    @property
    def refresh(self) -> Refresh:
        assert self.view.position is not None
        assert self.view.position.refresh is not None
        return self.view.position.refresh


def running(connection: Connection, handlers: Collection[str]) -> list[RunningRefresh]:
    """Views of these handlers with a refresh that has begun."""
    found = []
    gathered = Position.load(connection)
    newest = reads.current_version(connection)
    for view, handler, numbers in readers(connection):
        position = view.position
        if position is None or position.refresh is None or handler.name not in handlers:
            continue
        to = {n: Version(position.refresh.to.get(n, position.read[n])) for n in numbers}
        gathered_to = {n: max(to[n], gathered.inputs[i].until) for n, i in numbers.items() if i in gathered.inputs}
        failed = position.failed_in_refresh  # what fails on a stream's row keeps no chunk from going on
        if failed and not _may_go(position, gathered_to):
            continue
        target = _standing(connection, view, numbers, newest)
        mended = None
        if failed:
            mended = replace(target, batch={**target.batch, **to, **gathered_to})
        again = any(until > to[n] for n, until in gathered_to.items())
        found.append(RunningRefresh(view=view, handler=handler, target=target, again=again, mended=mended))
    return found


def _standing(connection: Connection, view: View, batch: Mapping[str, RelationId], newest: Version) -> Target:
    """The versions that a view names; the newest of streams, if one of those cannot be read any more."""
    assert view.position is not None
    read = {n: Version(v) for n, v in view.position.read.items()}
    if all(reads.relation(connection, n).horizon <= read[n] for n in view.inputs if n not in batch):
        return Target(stream=view.position.applied_version, batch=read)
    return Target(stream=newest, batch={n: read[n] for n in batch})
