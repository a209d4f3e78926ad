"""Which step the indexes of a base take next, as values; and the statements as values."""

from __future__ import annotations

import itertools
import math

import pyarrow as pa
import pytest

from ebla.build.states import TRANSITIONS, Permission
from ebla.errors import SqlError
from ebla.ids import RelationId, TabletId, Version
from ebla.indexes.backfill import in_order
from ebla.indexes.steps import Advance, Fill, Finish, Standing, next_step
from ebla.query import values as v
from ebla.query.select import normalized
from ebla.sql import statements as st
from ebla.sql.parse import parse


def standing(index: int, state: Permission, *left: int, since: int = 1) -> Standing:
    tablets = frozenset(TabletId(t) for t in left)
    return Standing(index=RelationId(index), state=state, since=Version(since), left=tablets)


def test_nothing_to_do():
    assert next_step([], tablets_max=4) is None
    ready = standing(1, Permission.READ_WRITE_AND_DELETE)
    assert next_step([ready, standing(2, Permission.ABSENT)], tablets_max=4) is None


@pytest.mark.parametrize("state", [s for s in Permission if s not in (Permission.ABSENT, Permission.BACKFILLING)])
def test_every_step_is_one_that_there_is(state: Permission):
    found = next_step([standing(1, state)], tablets_max=4)
    if state is Permission.READ_WRITE_AND_DELETE:
        assert found is None
    else:
        assert isinstance(found, Advance)
        assert (state, found.to) in TRANSITIONS


def test_a_barrier_is_for_the_youngest():
    found = next_step(
        [standing(1, Permission.DELETE_ONLY, since=5), standing(2, Permission.DELETE_ONLY, since=9)], tablets_max=4
    )
    assert found == Advance(indexes=(RelationId(1), RelationId(2)), to=Permission.WRITE_AND_DELETE, since=Version(9))


def test_those_at_the_beginning_catch_up_before_a_scan():
    indexes = [standing(1, Permission.BACKFILLING, 0, 1), standing(2, Permission.DELETE_ONLY)]
    found = next_step(indexes, tablets_max=4)
    assert isinstance(found, Advance)
    assert found.indexes == (RelationId(2),)


def test_removals_come_first():
    indexes = [standing(1, Permission.DELETE_ONLY), standing(2, Permission.REMOVING_WRITES)]
    assert next_step(indexes, tablets_max=4) == Advance(
        indexes=(RelationId(2),), to=Permission.REMOVING_DELETES, since=Version(1)
    )


def test_one_scan_for_all_that_have_not_read_a_tablet():
    indexes = [standing(1, Permission.BACKFILLING, 0, 1, 2), standing(2, Permission.BACKFILLING, 2, 3)]
    assert next_step(indexes, tablets_max=2) == Fill(indexes=(RelationId(1),), tablets=(TabletId(0), TabletId(1)))
    assert next_step(indexes, tablets_max=3) == Fill(
        indexes=(RelationId(1), RelationId(2)), tablets=(TabletId(0), TabletId(1), TabletId(2))
    )


def test_what_is_complete_waits_for_nobody():
    indexes = [standing(1, Permission.BACKFILLING, 0), standing(2, Permission.BACKFILLING)]
    assert next_step(indexes, tablets_max=4) == Finish(index=RelationId(2))


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
    ],
)
def test_wrong_statements(text: str, expected: str):
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert expected in str(caught.value)


def test_the_other_statements_parse():
    assert parse("DROP INDEX IF EXISTS i") == st.DropIndex(name="i", if_exists=True)
    assert parse("BUILD INDEXES ON t") == st.BuildIndexes(table="t")
    assert parse("SHOW INDEXES") == st.ShowIndexes()
    assert parse("CHECK INDEX i SAMPLE 2.5 PERCENT") == st.Check(what="index", name="i", percent=2.5)
    assert parse("REPAIR INDEX i") == st.Repair(what="index", name="i")


def test_expressions_are_equal_whatever_their_spacing():
    assert normalized("LOWER(a)") == normalized(" lower ( a ) ")
    assert normalized("lower(a)") != normalized("lower(A)")
    assert normalized("lower('A')") != normalized("lower('a')")
