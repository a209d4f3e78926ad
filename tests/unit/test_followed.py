"""Which parts of a view's query are followed, and what is recomputed because its meaning is not certain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from ebla.algebra.explain import steps
from ebla.algebra.keys import identity
from ebla.algebra.merge import sketch
from ebla.algebra.nodes import Computation, NotUnderstood, Shape, leaves
from ebla.algebra.plan import FullRefresh, IncrementalPlan, Merge, plan
from ebla.algebra.shape import shape
from ebla.relations.views import View
from ebla.sql.items import unordered
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import Inputs

TABLES = {
    "a": {"id": "bigint", "x": "bigint", "s": "string", "day": "date", "at": "timestamp"},
    "b": {"id": "bigint", "x": "bigint", "s": "string"},
}
KEYS = {"a": ["id"], "b": ["id"]}


def read(text: str) -> Query:
    query = parse(text)
    assert isinstance(query, Query)
    return query


def understood(text: str) -> Shape:
    return shape(read(text), TABLES)


def computed(expression: str) -> list[str]:
    """The expressions that a view which groups by this one follows as columns."""
    found = understood(f"SELECT {expression} AS k, count(DISTINCT x) AS n FROM a GROUP BY {expression}")
    return [str(c) for leaf in leaves(found.root) for c in leaf.columns.values() if isinstance(c, Computation)]


@pytest.mark.parametrize(
    "expression",
    [
        "s NOT LIKE 'p%'",
        "s LIKE 'p!%' ESCAPE '!'",
        "s LIKE ANY ('p', 'q')",
        "s = 'O''Brien'",
        "concat(s, 'O''Brien')",
        "concat(s, 'O' 'Brien')",
        r"s = '\101'",
        "s COLLATE UTF8_LCASE",
        "trim(BOTH 'x' FROM s)",
        "x BETWEEN SYMMETRIC 2 AND 1",
        "date_trunc('D', at)",
        "date_trunc('H', at)",
        "date_trunc(s, at)",
        "trunc(day, 'Y')",
        "to_date(s, 'yyyy')",
        "-s",
    ],
)
def test_an_expression_that_says_more_than_is_listed_is_not_followed(expression: str) -> None:
    assert computed(expression) == []


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("s LIKE 'p%'", "(s LIKE 'p%')"),
        ("x NOT IN (1, 2)", "(NOT (x IN (1, 2)))"),
        ("date_trunc('dd', at)", "date_trunc('dd', at)"),
        ("trunc(day, 'MM')", "trunc(day, 'MM')"),
        ("hour(to_date(at))", "hour(to_date(at))"),
        ("hour(at)", "hour(at)"),
        ("month(at)", "month(at)"),
        ("s || 'p'", "concat(s, 'p')"),
    ],
)
def test_an_expression_on_the_list_is_followed_as_it_is_written(expression: str, text: str) -> None:
    assert computed(expression) == [text]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x, s, count(*) AS n FROM a GROUP BY x, s GROUPING SETS ((x), (x, s))",
        "FROM a |> WHERE x > 1 |> ORDER BY x |> LIMIT 3",
        "SELECT x FROM a |> ORDER BY x LIMIT 3",
        "SELECT id, sum(x) OVER w AS n FROM a ORDER BY id WINDOW w AS (PARTITION BY x) LIMIT 3",
        "SELECT id FROM a SORT BY id LIMIT 3",
        "SELECT id FROM a ORDER BY id LIMIT 1 + 2",
        "SELECT id FROM a ORDER BY ALL LIMIT 3",
        "SELECT id FROM a WHERE x IN (SELECT x FROM b ORDER BY x LIMIT 3)",
    ],
)
def test_a_query_whose_end_or_groups_are_written_otherwise_is_recomputed(query: str) -> None:
    with pytest.raises(NotUnderstood):
        understood(query)


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("SELECT id FROM a ORDER BY id LIMIT 3 -- the first", "SELECT id FROM a "),
        ("SELECT id FROM a ORDER BY id DESC, x LIMIT 3 OFFSET 2", "SELECT id FROM a "),
        ("SELECT id FROM a ORDER BY id", None),
        ("SELECT id FROM a ORDER BY id LIMIT 3 |> WHERE id > 1", None),
        ("SELECT id FROM a ORDER BY id WINDOW w AS (ORDER BY x) LIMIT 3", None),
        ("SELECT id FROM (SELECT id FROM a ORDER BY id LIMIT 3)", None),
    ],
)
def test_a_query_without_its_end_is_told_only_where_nothing_else_stands_there(query: str, rest: str | None) -> None:
    found = unordered(read(query))
    assert (None if found is None else found.text) == rest


@pytest.mark.parametrize(
    "lateral",
    ["LATERAL VIEW explode(split(a.s, '')) e AS w", ", LATERAL (SELECT count(*) AS w FROM b c WHERE c.x = a.x) l"],
)
def test_tables_that_commas_join_are_narrowed_under_lateral(lateral: str) -> None:
    made = plan(understood(f"SELECT a.id, b.id AS other, w FROM a, b {lateral} WHERE a.x = b.x"), ["b"], KEYS)
    assert isinstance(made, IncrementalPlan)
    assert not made.whole


@pytest.mark.parametrize("end", ["HAVING count(*) > 1", "ORDER BY n, x, s LIMIT 3"])
def test_explain_says_why_grouping_sets_are_recomputed(end: str) -> None:
    text = f"SELECT x, s, count(*) AS n FROM a GROUP BY ROLLUP (x, s) {end}"
    found = understood(text)
    assert sketch(read(text), found, ["x", "s", "n"]) is None
    made = plan(found, ["a"], KEYS)
    assert isinstance(made, FullRefresh)
    assert "where they can be merged" in steps(made)[0].text


@pytest.mark.parametrize("column", ["id", "x"])
def test_a_null_in_the_list_of_not_in_touches_every_row(column: str) -> None:
    made = plan(understood(f"SELECT id FROM a WHERE {column} NOT IN (SELECT x FROM b)"), ["b"], KEYS)
    assert isinstance(made, IncrementalPlan)
    assert "WithoutNull" in repr(made.affected)


def test_a_lateral_generator_without_from_gives_several_rows() -> None:
    text = "SELECT a.id, t.w FROM a, LATERAL (SELECT w LATERAL VIEW explode(array(1, 2)) e AS w) t"
    assert identity(understood(text).root, KEYS) is None


def test_rows_of_other_mentions_do_not_stand_for_one_that_is_missing() -> None:
    view = cast(View, SimpleNamespace(kept=read("SELECT a.id FROM a JOIN b ON a.x = b.x")))
    evaluation, rows = Evaluation(view, cast(Inputs, None)), pa.table({})
    assert evaluation._has_all({0: rows}, (1,))
    assert not evaluation._has_all({-1: rows, 0: rows})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, rank() OVER w AS r FROM a WINDOW w AS (PARTITION BY s ORDER BY abs(x - (SELECT max(b.x) FROM b)))",
        "SELECT s, count(*) AS n FROM a GROUP BY s, x > (SELECT max(b.x) FROM b)",
        "SELECT a.id, t.id AS other FROM a, LATERAL (SELECT b.id FROM b WHERE b.s = a.s "
        "ORDER BY abs(b.x - (SELECT max(c.x) FROM b AS c)), b.id LIMIT 1) AS t",
        "SELECT a.id, (SELECT b.x FROM b WHERE b.s = a.s ORDER BY abs(b.x - (SELECT max(c.x) FROM b AS c)) LIMIT 1) "
        "AS t FROM a",
    ],
)
def test_a_table_that_the_tree_does_not_have_makes_the_view_not_understood(text: str) -> None:
    """A change of it would be taken for one that no row of the view depends on."""
    with pytest.raises(NotUnderstood, match="a subquery in GROUP BY, ORDER BY or WINDOW"):
        understood(text)


@pytest.mark.parametrize(("changed", "by"), [("lines", ("o", "n")), ("orders", ("o",))])
def test_a_merge_takes_changed_rows_by_their_key_and_not_their_neighbours(changed: str, by: tuple[str, ...]) -> None:
    """All lines of an order would be read and evaluated twice, as they were and as they are, to tell one line's sum."""
    tables = {"lines": {"o": "bigint", "n": "bigint", "price": "bigint"}, "orders": {"o": "bigint", "c": "bigint"}}
    query = "SELECT c, sum(price) AS s FROM lines l JOIN orders r ON l.o = r.o GROUP BY c"
    keys = {"lines": ["o", "n"], "orders": ["o"]}
    made = plan(shape(read(query), tables), [changed], keys, merges=True)
    assert isinstance(made, Merge)
    (term,) = made.terms
    assert [one.by for one in term.narrowed if one.table == changed] == [by]
