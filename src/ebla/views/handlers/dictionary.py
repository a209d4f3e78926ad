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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.handlers import DICTIONARY, EVERYTHING
from ebla.model.relation import DELETED, FOREVER, Relation, Run
from ebla.relations.readers import least_read
from ebla.relations.stored_values import read_text
from ebla.storage import runs as rf
from ebla.tables.value_lookup import replaced_rows
from ebla.tables.write_access import WriteAccess
from ebla.values import types
from ebla.values.columns import python_rows

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
class GatheredPosition:
    inputs: Mapping[RelationId, GatheredRange] = field(default_factory=dict)
    stored: str | None = None

    @classmethod
    def load(cls, connection: Connection) -> GatheredPosition:
        text = reads.progress(connection, DICTIONARY)
        found = read_text(dict[RelationId, tuple[Version, Version]], text or "{}")
        inputs = {one: GatheredRange(since=since, until=until) for one, (since, until) in found.items()}
        return cls(inputs=inputs, stored=text)

    def text(self) -> str:
        return json.dumps({str(i): [g.since, g.until] for i, g in sorted(self.inputs.items())})


# ---- gathering ------------------------------------------------------------------------------------------


def gather(context: WriteAccess) -> int:
    """Log what dictionaries changed; how many rows. Repeats until everything committed before is logged."""
    logged = 0
    while True:
        done, more = _gather(context)
        logged += done
        if not more:
            return logged


def _gather(context: WriteAccess) -> tuple[int, bool]:
    with context.catalog.reading() as connection:
        newest = reads.current_version(connection)
        before = GatheredPosition.load(connection)
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
    forgotten, inputs = _forget(context.catalog, before, inputs, least)
    after = GatheredPosition(inputs=inputs)
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
    catalog: Catalog,
    before: GatheredPosition,
    inputs: Mapping[RelationId, GatheredRange],
    least: Mapping[RelationId, Version | None],
) -> tuple[list[c.ForgetDictionaryChanges], dict[RelationId, GatheredRange]]:
    """Log rows that every view has done with, and the position without them."""
    kept = dict(inputs)
    found = []
    with catalog.reading() as connection:
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
    context: WriteAccess, relation: Relation, since: Version, until: Version
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


def compare(
    context: WriteAccess, relation: Relation, runs: Sequence[Run], version: Version
) -> list[c.DictionaryChange]:
    """What one commit changed, key by key. A row that is written again as it was is no change."""
    with context.catalog.reading() as connection:
        old = reads.snapshot(connection, relation, Version(version - 1))
    names = [col.name for col in relation.columns]
    key = [k.name for k in relation.key]
    schema = pa.schema([pa.field(col.name, types.to_arrow(col.type)) for col in relation.columns])
    latest = rf.mutations(relation, runs, context.roots(), context.storage.level0)
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
