"""What an unfinished view knows of its base, and what the commits of its build require and cover."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ebla.base.ids import RelationId, TaskId, Version
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.chunks import Stretch, position_of, spans
from ebla.model.segments import Segment
from ebla.model.tablets import ALL, TokenRange, token_ranges
from ebla.values import token
from ebla.views.epoch.growth import Growth
from ebla.views.epoch.region import Region, covered_stretches, inside
from support.relations import relation

ORDERS = relation("orders", "id", "id bigint", "total bigint", number=1)
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "total": pa.array(range(100), pa.int64())})
TOKENS = token.tokens(ROWS, ["id"])
T0, T1, T2, _ = token_ranges(4)
MIDDLE = position_of(int(sorted(TOKENS)[49]))


def segment(up_to: str | None, since: int, rows: int = 5) -> Segment[str]:
    return Segment(up_to=up_to, since=Version(since), rows=rows)


def stretch(after: str | None, up_to: str | None, rows: int = 7, tokens: TokenRange = ALL) -> Stretch:
    return Stretch(tokens=tokens, after=after, up_to=up_to, rows=rows)


def test_rows_lie_in_a_part_by_their_token() -> None:
    assert ORDERS.tablets == 1
    first = inside(ROWS, ORDERS, [stretch(None, MIDDLE)])
    second = inside(ROWS, ORDERS, [stretch(MIDDLE, None)])
    assert first.num_rows == second.num_rows == 50
    assert {*first["id"].to_pylist(), *second["id"].to_pylist()} == set(range(100))
    assert inside(ROWS, ORDERS, [stretch(None, None)]) == ROWS
    assert inside(ROWS, ORDERS, []).num_rows == 0
    assert inside(ROWS.slice(0, 0), ORDERS, []).num_rows == 0


def test_a_region_behind_a_chunk_is_one_part_for_each_tablet() -> None:
    covered = {T0: (segment("4", 3), segment("8", 3)), T1: (segment(None, 3),), T2: ()}
    region = Region(table="orders", covered=covered_stretches(covered), added=(stretch("8", None, tokens=T0),))
    assert [(p.tokens, p.after, p.up_to, p.rows) for p in region.covered] == [(T0, None, "8", 10), (T1, None, None, 5)]
    assert [(p.tokens, p.after, p.up_to, p.rows) for p in region.after] == [(T0, None, None, 17), (T1, None, None, 5)]
    assert spans(region.after) == [(T0.first, T1.last)]
    assert (region.rows, region.rows_added) == (22, 7)


def test_a_chunk_may_have_more_rows_than_were_counted() -> None:
    assert Region(table="orders", covered=(), added=(stretch(None, None, rows=0),)).rows_added == 1
    assert Region(table="orders", covered=(stretch(None, None),)).rows_added == 0


def test_a_chunk_moves_every_segment_and_requires_them_as_they_were() -> None:
    covered = {T0: (segment("4", 3),), T1: (segment(None, 3), segment(None, 3))}
    tasks = frozenset({TaskId("a")})
    growth = Growth(
        view=RelationId(9), base="orders", covered=covered, stretches=(stretch("4", "8", tokens=T0),), tasks=tasks
    )
    assert growth.begun
    assert growth.requires() == [
        c.TasksOpen(tasks=tasks),
        *(
            c.SegmentsBegin(view=RelationId(9), tokens=t, segments=segments, exactly=True)
            for t, segments in covered.items()
        ),
    ]
    assert growth.updates(Version(6)) == [
        c.ReplaceSegments(view=RelationId(9), tokens=T0, seen=1, segments=(segment("4", 6),)),
        c.ReplaceSegments(view=RelationId(9), tokens=T1, seen=2, segments=(segment(None, 6, rows=10),)),
        c.CoverSegment(view=RelationId(9), tokens=T0, segment=segment("8", 6, rows=7)),
    ]


def test_an_epoch_between_chunks_needs_no_task_and_the_first_chunk_finds_nothing() -> None:
    between = Growth(view=RelationId(9), base="orders", covered={T0: (segment("4", 3),)})
    assert [type(r) for r in between.requires()] == [c.SegmentsBegin]
    assert [type(u) for u in between.updates(Version(6))] == [c.ReplaceSegments]
    first = Growth(view=RelationId(9), base="orders", covered={}, stretches=(stretch(None, "4", tokens=T0),))
    assert not first.begun
    assert first.requires() == [c.SegmentsBegin(view=RelationId(9), tokens=T0, segments=(), exactly=True)]


@pytest.mark.parametrize("covered", [(), (segment("8", 3),), (segment(None, 3),)])
def test_a_chunk_that_starts_elsewhere_is_refused(covered: tuple[Segment[str], ...]) -> None:
    with pytest.raises(ConflictError, match=f"{T0}: expected position 4, found another"):
        Growth(view=RelationId(9), base="orders", covered={T0: covered}, stretches=(stretch("4", "8", tokens=T0),))
