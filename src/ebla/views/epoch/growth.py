"""What the commit of an epoch requires and covers, where the epoch is a part of a build.

A view in one piece is covered by one commit. A view that grows (`ebla.views.epoch.region`) stands at one version
everywhere: every commit, be it of a chunk or of an epoch between chunks, moves all its segments to the epoch's version,
so it requires them as they were. Of a chunk and an epoch that overlap one is refused and looks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from ebla.base.ids import RelationId, TabletId, TaskId, Version
from ebla.catalog import building, reads
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.chunks import Part
from ebla.model.segments import Segment, Segments
from ebla.relations.views import View
from ebla.views.epoch.region import Region, covered_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is to be built of a view: parts of its base, for the tasks of their tablets. No parts: all, in one piece."""

    view: str
    """In lower case."""
    parts: tuple[Part, ...] = ()
    tasks: frozenset[TaskId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePiece:
    """The build of a view in one piece: one commit covers all tablets of the base, for all tasks."""

    view: RelationId
    tasks: frozenset[TaskId]
    rows: Mapping[TabletId, int]
    """Of each tablet of the base, about."""

    def requires(self) -> list[c.Requirement]:
        untouched = [c.SegmentsBegin(view=self.view, tablet=t, segments=(), exactly=True) for t in self.rows]
        return [c.TasksOpen(tasks=self.tasks), *untouched]

    def updates(self, since: Version) -> list[c.Update]:
        return [
            c.CoverSegment(view=self.view, tablet=tablet, segment=Segment(up_to=None, since=since, rows=rows))
            for tablet, rows in self.rows.items()
        ]


def in_one_piece(connection: Connection, view: View) -> OnePiece:
    """What a build in one piece requires and covers. A task whose tablet moves makes it wait."""
    tasks = building.tasks_of(connection, view.relation.id)
    base = reads.relation_by_id(connection, building.builds(connection)[view.relation.id].base)
    rows = 0 if base is None else reads.snapshot(connection, base).rows_at_most
    tablets = 1 if base is None else base.tablets
    return OnePiece(
        view=view.relation.id,
        tasks=frozenset(task.id for task in tasks),
        rows={TabletId(t): rows // tablets + (t < rows % tablets) for t in range(tablets)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How far a view that grows covers its base, and what a chunk adds: nothing in an epoch between chunks."""

    view: RelationId
    base: str
    """In lower case."""
    covered: Mapping[TabletId, Segments[str]]
    parts: tuple[Part, ...] = ()
    tasks: frozenset[TaskId] = frozenset()

    def __post_init__(self) -> None:
        for part in self.parts:
            segments = self.covered.get(part.tablet, ())
            if sg.is_covered(segments) or sg.position(segments) != part.after:
                raise ConflictError(
                    f"view {self.view} tablet {part.tablet}: expected position {part.after}, found another; "
                    "another worker came first: read again"
                )

    @property
    def begun(self) -> bool:
        return any(self.covered.values())

    @property
    def rows_read(self) -> int:
        return sum(part.rows for part in self.parts)

    def region(self) -> Region:
        return Region(table=self.base, covered=covered_parts(self.covered), added=self.parts)

    def requires(self) -> list[c.Requirement]:
        tablets = sorted({*self.covered, *(part.tablet for part in self.parts)})
        unmoved: list[c.Requirement] = [
            c.SegmentsBegin(view=self.view, tablet=t, segments=self.covered.get(t, ()), exactly=True) for t in tablets
        ]
        return [c.TasksOpen(tasks=self.tasks), *unmoved] if self.tasks else unmoved

    def updates(self, version: Version) -> list[c.Update]:
        """All segments at the version, and those of the chunk behind them."""
        found: list[c.Update] = [
            c.ReplaceSegments(view=self.view, tablet=t, seen=len(segments), segments=sg.advance(segments, version))
            for t, segments in self.covered.items()
        ]
        for part in self.parts:
            segment = Segment(up_to=part.up_to, since=version, rows=part.rows)
            sg.cover(self.covered.get(part.tablet, ()), segment)  # refuses a chunk that does not advance
            found.append(c.CoverSegment(view=self.view, tablet=part.tablet, segment=segment))
        return found


def growth(connection: Connection, view: View, base: str, piece: Piece | None = None) -> Growth:
    return Growth(
        view=view.relation.id,
        base=base.lower(),
        covered=building.segments(connection, view.relation.id),
        parts=() if piece is None else piece.parts,
        tasks=frozenset() if piece is None else piece.tasks,
    )
