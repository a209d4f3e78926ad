"""Which step the indexes of a base take next, as values; and the statements as values."""

from __future__ import annotations

import itertools
import math

import pyarrow as pa
import pytest

from ebla.base.ids import RelationId, TransactionId, Version
from ebla.errors import SqlError
from ebla.model.index_steps import Advance, IndexStanding, Wait, next_step, not_yet, version_to_keep, version_to_read
from ebla.model.lifecycle.index import LIFE, Permission
from ebla.predicates import values as v
from ebla.predicates.select import normalized
from ebla.sql import statements as st
from ebla.sql.parse import parse
from ebla.storage.runs import in_order
from ebla.tables.chunk_scan import ChunkReading, version_of

GRACE = 100


def standing(
    index: int,
    state: Permission,
    *blockers: int,
    base: int = 9,
    since: int = 1,
    began: int = 0,
    read: int | None = None,
) -> IndexStanding:
    return IndexStanding(
        index=RelationId(index),
        base=RelationId(base),
        state=state,
        since=Version(since),
        read_version=None if read is None else Version(read),
        began_us=began,
        blockers=tuple(TransactionId(b) for b in blockers),
    )


def step(*indexes: IndexStanding, now: int = 0) -> Advance | Wait | None:
    return next_step(indexes, now_us=now, grace_us=GRACE)


def ids(*numbers: int) -> set[RelationId]:
    return {RelationId(n) for n in numbers}


def test_nothing_to_do():
    assert step() is None
    assert step(standing(1, Permission.BACKFILLING)) is None


@pytest.mark.parametrize("state", [s for s in Permission if s not in (Permission.ABSENT, Permission.BACKFILLING)])
def test_every_step_is_one_that_there_is(state: Permission):
    found = step(standing(1, state))
    if state is Permission.READ_WRITE_AND_DELETE:
        assert found is None
    else:
        assert isinstance(found, Advance)
        assert LIFE.allows(state, found.to)


def test_indexes_of_one_state_go_on_together():
    found = step(standing(1, Permission.DELETE_ONLY), standing(2, Permission.DELETE_ONLY))
    assert found == Advance(indexes=(RelationId(1), RelationId(2)), to=Permission.WRITE_AND_DELETE)


def test_a_barrier_is_for_the_youngest_and_ends_with_the_grace():
    """Counted from the commit that began the state, in every process."""
    old, young = standing(1, Permission.DELETE_ONLY, 5, began=10), standing(2, Permission.DELETE_ONLY, 5, 6, began=30)
    assert step(old, young, now=129) == Wait(until_us=130, blockers=(TransactionId(5), TransactionId(6)))
    assert step(old, young, now=130) == Advance(
        indexes=(RelationId(1), RelationId(2)),
        to=Permission.WRITE_AND_DELETE,
        abort=(TransactionId(5), TransactionId(6)),
    )


def test_removals_come_first_and_one_that_waits_holds_up_nobody():
    coming = standing(1, Permission.DELETE_ONLY)
    going = standing(2, Permission.REMOVING_WRITES)
    assert step(coming, going) == Advance(indexes=(RelationId(2),), to=Permission.REMOVING_DELETES)
    assert step(coming, standing(2, Permission.REMOVING_WRITES, 7)) == Advance(
        indexes=(RelationId(1),), to=Permission.WRITE_AND_DELETE
    )
    both = [standing(1, Permission.DELETE_ONLY, 7, began=3), standing(2, Permission.REMOVING_WRITES, 7, began=8)]
    assert step(*both) == Wait(until_us=103, blockers=(TransactionId(7),))


# ---- when tasks may begin -------------------------------------------------------------------------------


def test_an_index_is_filled_only_while_it_is_backfilling():
    every = [standing(n, state) for n, state in enumerate(Permission) if state is not Permission.READ_WRITE_AND_DELETE]
    filled = next(one.index for one in every if one.state is Permission.BACKFILLING)
    alone = [one for one in every if one.state not in (Permission.DELETE_ONLY, Permission.WRITE_AND_DELETE)]
    assert not_yet(alone, {}, [filled]) == {one.index for one in alone} - {filled}


def test_those_at_the_beginning_are_waited_for_but_not_by_what_is_complete():
    indexes = [
        standing(1, Permission.BACKFILLING),
        standing(2, Permission.BACKFILLING),
        standing(3, Permission.DELETE_ONLY),
    ]
    assert not_yet(indexes, {}, [RelationId(1), RelationId(3)]) == ids(1, 3)
    assert not_yet([*indexes[:2], standing(3, Permission.DELETE_ONLY, base=8)], {}, ids(1)) == ids(3)


def test_a_view_of_which_nothing_was_read_waits_for_an_index_that_waits_for_nobody():
    unread = {RelationId(5): RelationId(9), RelationId(6): RelationId(8)}
    assert not_yet([standing(1, Permission.DELETE_ONLY)], unread, []) == ids(1, 5)
    assert not_yet([standing(1, Permission.DELETE_ONLY, 7)], unread, []) == ids(1)
    assert not_yet([standing(1, Permission.REMOVING_WRITES)], unread, []) == ids(1)


def test_the_newest_version_is_read_and_the_oldest_is_kept():
    base = RelationId(9)
    indexes = [
        standing(1, Permission.BACKFILLING, read=5),
        standing(2, Permission.BACKFILLING, read=8),
        standing(3, Permission.REMOVING_WRITES, read=3),
        standing(4, Permission.BACKFILLING, read=9, base=7),
    ]
    assert (version_to_read(indexes, base), version_to_keep(indexes, base)) == (8, 5)
    assert (version_to_read(indexes[2:3], base), version_to_keep(indexes[2:3], base)) == (None, None)


@pytest.mark.parametrize(
    ("ats", "not_before", "expected"),
    [((None, None), (3, 7), None), ((5, None), (5, 3), 5), ((5, None), (5, 7), 7)],
    ids=["views alone read the newest", "an index reads at its version", "no view is read before it was there"],
)
def test_a_chunk_is_read_at_one_version(ats: tuple[int | None, ...], not_before: tuple[int, ...], expected: int | None):
    readings = [
        ChunkReading(columns=frozenset(), jobs=1, not_before=Version(least), at=None if at is None else Version(at))
        for at, least in zip(ats, not_before, strict=True)
    ]
    assert version_of(readings) == expected


# ---- order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directions", list(itertools.product([False, True], repeat=2)))
def test_arrow_sorts_as_ranks_do(directions: tuple[bool, bool]):
    values = [None, math.nan, -math.inf, -1.5, 0.0, 2.0, math.inf]
    rows = list(itertools.product(values, ["b", None, "", "a", "ä"]))
    table = pa.table({"x": [r[0] for r in rows], "s": [r[1] for r in rows]}).take(list(reversed(range(len(rows)))))
    key = list(zip(("x", "s"), directions, strict=True))
    found = table.take(in_order(table, key)).to_pylist()
    ranked = [tuple(v.ranker(down)(row[name]) for name, down in key) for row in found]
    assert ranked == sorted(ranked)


# ---- statements -----------------------------------------------------------------------------------------


def test_create_index_parses():
    made = parse(
        "CREATE ASYNC UNIQUE INDEX IF NOT EXISTS i ON t (a, `b c` DESC, lower(concat(a, ',')) ASC, "
        "n % 3 DESC NULLS LAST) INCLUDE (x, y) WHERE a > 1 AND b IN (1, 2) WITH (build = 'deferred')"
    )
    assert isinstance(made, st.CreateIndex)
    assert [(i.text, i.column, i.descending) for i in made.items] == [
        ("a", "a", False),
        ("`b c`", "b c", True),
        ("lower(concat(a, ','))", None, False),
        ("n % 3", None, True),
    ]
    assert (made.name, made.table, made.include, made.where) == ("i", "t", ("x", "y"), "a > 1 AND b IN (1, 2)")
    assert (made.unique, made.if_not_exists, made.asynchronous) == (True, True, True)
    assert made.options == {"build": "deferred"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE INDEX i ON t ()", "expected a column or an expression, found )"),
        ("CREATE INDEX i ON t (a,)", "expected a column or an expression, found )"),
        ("CREATE INDEX i ON t", "expected (, found the end of the statement"),
        ("CREATE INDEX i ON t (a NULLS LAST)", "expected FIRST, found LAST"),
        ("CREATE INDEX i ON t (a) WHERE", "expected a condition, found the end of the statement"),
        ("CREATE INDEX i ON t (a) INCLUDE ()", "expected an included column, found )"),
        ("DROP INDEX", "expected the name of a table, found the end of the statement"),
        ("CHECK INDEX i SAMPLE 0", "expected a percentage above 0 and up to 100, found 0"),
        ("CHECK INDEX i SAMPLE x", "expected a percentage above 0 and up to 100, found x"),
        ("BUILD INDEX t", "expected INDEXES, found INDEX"),
        ("ALTER INDEX i RENAME TO j", "expected PAUSE, RESUME or SET (…), found RENAME"),
    ],
)
def test_wrong_statements(text: str, expected: str):
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert expected in str(caught.value)


def test_the_other_statements_parse():
    assert parse("DROP INDEX IF EXISTS i") == st.DropIndex(name="i", if_exists=True)
    assert parse("BUILD INDEXES ON t") == st.BuildIndexes(table="t")
    assert parse("ALTER INDEX i PAUSE") == st.AlterBuild(name="i", options={"rows_per_minute": 0}, of="index")
    assert parse("ALTER INDEX i RESUME") == st.AlterBuild(name="i", options={"rows_per_minute": None}, of="index")
    assert parse("ALTER INDEX i SET (chunk_rows = 5)") == st.AlterBuild(name="i", options={"chunk_rows": 5}, of="index")
    assert parse("SHOW INDEXES") == st.ShowIndexes()
    assert parse("CHECK INDEX i SAMPLE 2.5 PERCENT") == st.Check(what="index", name="i", percent=2.5)
    assert parse("REPAIR INDEX i") == st.Repair(what="index", name="i")


def test_expressions_are_equal_whatever_their_spacing():
    assert normalized("LOWER(a)") == normalized(" lower ( a ) ")
    assert normalized("lower(a)") != normalized("lower(A)")
    assert normalized("lower('A')") != normalized("lower('a')")
