"""Groups kept by adding and subtracting."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from ebla.algebra.merge import Call, Role, Sketch, merge, settled, sketch
from ebla.algebra.shape import shape
from ebla.sql.items import select_list
from ebla.sql.parse import parse
from ebla.sql.query import Query

TABLES = {"t": {"id": "bigint", "g": "string", "x": "bigint", "d": "double", "p": "decimal(10,2)"}}


def query(text: str) -> Query:
    found = parse(text)
    assert isinstance(found, Query)
    return found


def sketched(text: str) -> Sketch | None:
    made = shape(query(text), TABLES)
    return sketch(query(text), made, [n for n, _ in made.outputs])


def test_the_query_is_extended_behind_its_last_item() -> None:
    made = sketched("SELECT g, sum(x) FILTER (WHERE x > 1) AS s, avg(p) AS a FROM t GROUP BY g")
    assert made is not None
    assert made.query.text == (
        "SELECT g, sum(x) FILTER (WHERE x > 1) AS s, avg(p) AS a, count(*) AS _ebla_rows, "
        "count(x) FILTER (WHERE x > 1) AS _ebla_count_1, count(p)  AS _ebla_count_2, sum(p)  AS _ebla_sum_2 "
        "FROM t GROUP BY g"
    )
    assert [r.call for r in made.roles][:3] == [Call.GROUP, Call.SUM, Call.AVG]
    assert made.query.refs[0].name == "t"
    assert made.query.text[made.query.refs[0].start : made.query.refs[0].end] == "t"


def test_distinct_is_counted() -> None:
    made = sketched("SELECT DISTINCT g, x + 1 AS y FROM t")
    assert made is not None
    assert made.query.text == (
        "SELECT `g`, `y`, count(*) AS _ebla_rows FROM (SELECT  g, x + 1 AS y FROM t) GROUP BY `g`, `y`"
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT g, count(*) AS n FROM t GROUP BY g HAVING count(*) > 1",
        "SELECT g, count(DISTINCT x) AS n FROM t GROUP BY g",
        "SELECT g, sum(x) + 1 AS n FROM t GROUP BY g",
        "SELECT sum(x) AS n FROM t GROUP BY g",
        "SELECT g, x FROM t",
        "SELECT g, first(x) AS f FROM t GROUP BY g",
        "SELECT y FROM (SELECT g AS y, count(*) AS n FROM t GROUP BY g)",
        "SELECT g FROM t UNION SELECT g FROM t",
    ],
)
def test_what_cannot_be_merged_is_left_alone(text: str) -> None:
    assert sketched(text) is None


def test_doubles_are_not_merged() -> None:
    made = sketched("SELECT g, sum(d) AS s FROM t GROUP BY g")
    assert made is not None
    assert settled(made.roles, ["string", "double", "bigint", "bigint"]) is None
    assert settled(made.roles, ["string", "bigint", "bigint", "bigint"]) is not None


ROLES = (
    Role(column="g", call=Call.GROUP, type="string"),
    Role(column="s", call=Call.SUM, counted="c", type="bigint"),
    Role(column="m", call=Call.MIN, counted="c", type="bigint"),
    Role(column="a", call=Call.AVG, counted="c", total="s", type="double"),
    Role(column="_ebla_rows", call=Call.ROWS, type="bigint"),
    Role(column="c", call=Call.COUNT, type="bigint"),
)


def group(g: str | None, *values: int | None) -> dict[str, Any]:
    """The aggregate of some rows."""
    known = [v for v in values if v is not None]
    return {
        "g": g,
        "s": sum(known) if known else None,
        "m": min(known, default=None),
        "a": sum(known) / len(known) if known else None,
        "_ebla_rows": len(values),
        "c": len(known),
    }


def test_rows_come_and_go() -> None:
    done = merge(ROLES, [group("a", 1, 5), group("b", 2)], [group("a", 7), group("n", 3)], [group("b", 2)])
    assert done.rows == [group("a", 1, 5, 7), group("n", 3)]
    assert done.gone == [group("b", 2)]
    assert done.stale == []


def test_a_group_without_counted_values_shows_null() -> None:
    done = merge(ROLES, [group("a", 4, None)], [], [group("a", 4)])
    assert done.rows == [group("a", None)]


def test_a_group_that_stays_the_same_is_not_written() -> None:
    done = merge(ROLES, [group("a", 1, 5)], [group("a", 5)], [group("a", 5)])
    assert (done.rows, done.gone, done.stale) == ([], [], [])


def test_a_smallest_value_that_left_makes_its_group_stale() -> None:
    assert merge(ROLES, [group("a", 1, 5)], [], [group("a", 1)]).stale == [("a",)]
    # What came is smaller still.
    assert merge(ROLES, [group("a", 1, 5)], [group("a", 0)], [group("a", 1)]).rows == [group("a", 0, 5)]
    # Something larger left.
    assert merge(ROLES, [group("a", 1, 5)], [], [group("a", 5)]).rows == [group("a", 1)]


def test_what_came_in_one_step_may_have_gone_in_the_next() -> None:
    stored, passing = [group("a", 3)], [group("a", 1)]
    assert merge(ROLES, stored, passing, passing, steps=2).stale == [("a",)]


def test_null_is_a_group() -> None:
    assert merge(ROLES, [], [group(None, 1)], []).rows == [group(None, 1)]


def test_a_sum_that_does_not_fit_is_left_to_spark() -> None:
    most = 2**63 - 1
    assert merge(ROLES, [group("a", most)], [group("a", 1)], []).stale == [("a",)]


def test_averages_of_decimals_round_half_up_as_in_spark() -> None:
    roles = (
        Role(column="a", call=Call.AVG, counted="c", total="s", type="decimal(14,6)"),
        Role(column="_ebla_rows", call=Call.ROWS, type="bigint"),
        Role(column="c", call=Call.COUNT, type="bigint"),
        Role(column="s", call=Call.SUM, counted="c", type="decimal(20,2)"),
    )
    came = [{"a": None, "_ebla_rows": 3, "c": 3, "s": Decimal("2.00")}]
    assert merge(roles, [], came, []).rows[0]["a"] == Decimal("0.666667")


def test_select_lists_are_found_by_tokens() -> None:
    listed = select_list(query("WITH w AS (SELECT 1 AS a) SELECT max(a) m, extract(YEAR FROM now()) AS y FROM w"))
    assert listed is not None
    assert [i.call for i in listed.items] == ["MAX", None]
    assert select_list(query("SELECT 1")) is None
    assert select_list(query("SELECT a FROM t UNION SELECT b FROM t")) is None
