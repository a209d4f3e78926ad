"""What the commit of an epoch requires and covers, where the epoch is a part of a build.

A view in one piece is covered by one commit. A view that grows (`ebla.views.epoch.region`) stands at one version
everywhere: every commit, be it of a chunk or of an epoch between chunks, moves all its segments to the epoch's version,
so it requires them as they were. Of a chunk and an epoch that overlap one is refused and looks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from ebla.base.ids import RelationId, TaskId, Version
from ebla.catalog import build_tasks, reads
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.chunks import Covered, Stretch
from ebla.model.segments import Segment
from ebla.model.tablets import TokenRange, token_range
from ebla.relations.views import View
from ebla.views.epoch.region import Region, covered_stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is to be built of a view: stretches of its base, for the tasks of their tablets. None: all, in one piece."""

    view: str
    """In lower case."""
    stretches: tuple[Stretch, ...] = ()
    tasks: frozenset[TaskId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePiece:
    """The build of a view in one piece: one commit covers all tablets of the base, for all tasks."""

    view: RelationId
    tasks: frozenset[TaskId]
    rows: Mapping[TokenRange, int]
    """Of each tablet of the base, about."""

    def requires(self) -> list[c.Requirement]:
        untouched = [c.SegmentsBegin(view=self.view, tokens=t, segments=(), exactly=True) for t in self.rows]
        return [c.TasksOpen(tasks=self.tasks), *untouched]

    def updates(self, since: Version) -> list[c.Update]:
        return [
            c.CoverSegment(view=self.view, tokens=tokens, segment=Segment(up_to=None, since=since, rows=rows))
            for tokens, rows in self.rows.items()
        ]


def in_one_piece(connection: Connection, view: View) -> OnePiece:
    """What a build in one piece requires and covers. A task whose tablet moves makes it wait."""
    tasks = build_tasks.tasks_of(connection, view.relation.id)
    base = reads.relation_by_id(connection, build_tasks.builds(connection)[view.relation.id].base)
    rows = 0 if base is None else reads.snapshot(connection, base).rows_at_most
    tablets = 1 if base is None else base.tablets
    return OnePiece(
        view=view.relation.id,
        tasks=frozenset(task.id for task in tasks),
        rows={token_range(t, tablets): rows // tablets + (t < rows % tablets) for t in range(tablets)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How far a view that grows covers its base, and what a chunk adds: nothing in an epoch between chunks."""

    view: RelationId
    base: str
    """In lower case."""
    covered: Covered
    stretches: tuple[Stretch, ...] = ()
    tasks: frozenset[TaskId] = frozenset()

    def __post_init__(self) -> None:
        for stretch in self.stretches:
            segments = self.covered.get(stretch.tokens, ())
            if sg.is_covered(segments) or sg.position(segments) != stretch.after:
                raise ConflictError(
                    f"view {self.view} {stretch.tokens}: expected position {stretch.after}, found another; "
                    "another worker came first: read again"
                )

    @property
    def begun(self) -> bool:
        return any(self.covered.values())

    @property
    def rows_read(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)

    def region(self) -> Region:
        return Region(table=self.base, covered=covered_stretches(self.covered), added=self.stretches)

    def requires(self) -> list[c.Requirement]:
        ranges = sorted({*self.covered, *(stretch.tokens for stretch in self.stretches)})
        unmoved: list[c.Requirement] = [
            c.SegmentsBegin(view=self.view, tokens=t, segments=self.covered.get(t, ()), exactly=True) for t in ranges
        ]
        return [c.TasksOpen(tasks=self.tasks), *unmoved] if self.tasks else unmoved

    def updates(self, version: Version) -> list[c.Update]:
        """All segments at the version, and those of the chunk behind them."""
        found: list[c.Update] = [
            c.ReplaceSegments(view=self.view, tokens=t, seen=len(segments), segments=sg.advance(segments, version))
            for t, segments in self.covered.items()
        ]
        for stretch in self.stretches:
            segment = Segment(up_to=stretch.up_to, since=version, rows=stretch.rows)
            sg.cover(self.covered.get(stretch.tokens, ()), segment)  # refuses a chunk that does not advance
            found.append(c.CoverSegment(view=self.view, tokens=stretch.tokens, segment=segment))
        return found


def growth(connection: Connection, view: View, base: str, piece: Piece | None = None) -> Growth:
    return Growth(
        view=view.relation.id,
        base=base.lower(),
        covered=build_tasks.segments(connection, view.relation.id),
        stretches=() if piece is None else piece.stretches,
        tasks=frozenset() if piece is None else piece.tasks,
    )
