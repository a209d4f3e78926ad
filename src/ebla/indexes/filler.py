"""How indexes are filled: what the engine of building asks for, answered with indexes' own means.

A chunk of the base becomes level 1 of all indexes that read it, in one Spark job for those of one session's settings
(`ebla.indexes.backfill`). Every tablet is committed on its own: its runs, the segment, and, at the tablet's end, the
end of its task. What was committed before a crash is not done again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from ebla.base.ids import RelationId, TaskId, Version
from ebla.catalog import build_tasks
from ebla.errors import SnapshotError, UnknownNameError
from ebla.indexes import removal, walk
from ebla.indexes.chunk_fill import ChunkFill, moved
from ebla.model.chunks import CHUNK_ROWS, position_in
from ebla.model.index_steps import version_to_keep, version_to_read
from ebla.model.lifecycle.index import backfill_level
from ebla.model.relation import Relation
from ebla.relations import indexes as definition
from ebla.relations.indexes import Index
from ebla.relations.tasks import standings
from ebla.spark.faults import is_final
from ebla.tables.chunk_scan import ChunkReading, Scan
from ebla.tables.write_access import WriteAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFiller:
    context: WriteAccess

    @property
    def tablets_max(self) -> int | None:
        return self.context.settings.index_tablets_per_job

    def in_one_piece(self, relation: RelationId) -> bool:
        return False

    def chunk_rows(self, relation: RelationId, rows_covered: int) -> int:
        return CHUNK_ROWS

    def fill_whole(self, relation: RelationId) -> None:
        raise AssertionError(f"relation {relation}: an index is filled in chunks")

    def reading(self, base: Relation, relations: Collection[RelationId]) -> ChunkReading:
        """The version is kept from vacuum from now on, for another while."""
        with self.context.catalog.reading() as connection:
            indexes, _ = _load(connection, relations)
            standing = standings(connection, base.id)
        at, oldest = version_to_read(standing, base.id), version_to_keep(standing, base.id)
        if oldest is not None:
            walk.keep(self.context.catalog, self.context.settings, base.id, oldest)
        columns = frozenset(c_.physical for index in indexes for c_ in (*index.needed, *index.base.key))
        jobs = len(_of_one_session(indexes))
        return ChunkReading(columns=columns, jobs=jobs, not_before=Version(0) if at is None else at, at=at)

    def fill(self, scan: Scan, tasks: Mapping[RelationId, frozenset[TaskId]]) -> Mapping[RelationId, Exception]:
        with self.context.catalog.reading() as connection:
            indexes, wrong = _load(connection, tasks)
            if scan.at is None:  # none was to be filled any more when the chunk was begun
                return {number: moved(number) for number in tasks} | wrong
            indexes = [definition.at_version(connection, index, scan.at) for index in indexes]
            covered = {index.id: build_tasks.segments(connection, index.id) for index in indexes}
        for index in list(indexes):
            if any(position_in(covered[index.id], stretch.tokens) != stretch.after for stretch in scan.stretches):
                wrong[index.id] = moved(index.id)
                indexes.remove(index)
        for group in _of_one_session(indexes):
            wrong |= ChunkFill(self.context, scan, group, covered, tasks).run()
        return wrong

    def failed(self, relation: RelationId, error: Exception, read: Version) -> bool:
        if not isinstance(error, SnapshotError) and not is_final(error):
            return False  # it may go better another time, or the index is gone
        removal.give_up(self.context.catalog, self.context.node, self.context.holder, relation, error)
        return True


def _load(connection: Connection, relations: Iterable[RelationId]) -> tuple[list[Index], dict[RelationId, Exception]]:
    found: list[Index] = []
    wrong: dict[RelationId, Exception] = {}
    for number in sorted(relations):
        index = definition.find_by_id(connection, number)
        if index is None:
            wrong[number] = UnknownNameError(f"index {number}: expected to be there, found dropped")
        elif backfill_level(index.state) is None:
            wrong[number] = moved(number)
        else:
            found.append(index)
    return found, wrong


def _of_one_session(indexes: Sequence[Index]) -> list[list[Index]]:
    """Expressions mean what they mean in one session; indexes without any go with the first session."""
    groups: dict[tuple[tuple[str, str], ...], list[Index]] = {}
    plain: list[Index] = []
    for index in indexes:
        if index.settings:
            groups.setdefault(tuple(sorted(index.settings.items())), []).append(index)
        else:
            plain.append(index)
    if not groups:
        return [plain] if plain else []
    first, *rest = groups.values()
    return [[*plain, *first], *rest]
