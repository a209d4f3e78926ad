"""Positions in what Spark was given are positions in what the user wrote."""

from __future__ import annotations

import pytest

from ebla.spark.wording import without_internals
from ebla.sql import dml
from ebla.sql import statements as st
from ebla.sql.lex import split
from ebla.sql.parse import parse
from ebla.sql.query import Query, place

COLUMNS, KEY = ["id", "total", "note"], ["id"]


def made(text: str) -> tuple[Query, str]:
    """The query that carries out the last statement of a script."""
    part = split(text)[-1]
    statement = parse(part)
    match statement:
        case st.Delete():
            query = dml.delete_query(statement, COLUMNS, KEY)
        case st.Update():
            query = dml.update_query(statement, COLUMNS, KEY)
        case st.Merge():
            query = dml.merge_query(statement, COLUMNS, KEY)
        case st.Insert():
            query = dml.insert_query(statement, COLUMNS, KEY)
        case Query():
            return statement, statement.text
        case _:
            raise AssertionError(type(statement))
    return Query(text=query.text, refs=query.refs, source=part), query.text


@pytest.mark.parametrize(
    ("text", "word", "line", "column"),
    [
        ("DELETE FROM orders WHERE nope = 1", "nope", 1, 26),
        ("SELECT 1;\n\n  DELETE FROM orders\n  WHERE id > 1 AND nope = 1", "nope", 4, 20),
        ("UPDATE orders SET note = nope, total = 2 WHERE id = 1", "nope", 1, 26),
        ("UPDATE orders SET id = id + nope", "nope", 1, 29),
        (
            "MERGE INTO orders o USING new n ON o.id = n.idd\nWHEN MATCHED THEN UPDATE SET total = n.wrong",
            "n.idd",
            1,
            43,
        ),
        (
            "MERGE INTO orders o USING new n ON o.id = n.id\nWHEN MATCHED THEN UPDATE SET total = n.wrong",
            "n.wrong",
            2,
            38,
        ),
        ("INSERT INTO orders (id)\nSELECT nope FROM other", "nope", 2, 8),
        ("SELECT 1; SELECT 2,\n nope FROM orders", "nope", 2, 2),
    ],
)
def test_a_position_is_found_in_the_users_script(text: str, word: str, line: int, column: int):
    query, whole = made(text)
    at = whole.find(word)
    assert at >= 0
    assert place(query, at) == (line, column)


def test_what_only_ebla_wrote_has_no_place():
    query, whole = made("DELETE FROM orders WHERE id = 1")
    assert place(query, whole.find("_kind")) is None


def test_names_that_only_ebla_uses_are_left_out():
    listed = "[`_ebla_target`, `o`.`id`, `n`.`_ebla_y`, `o`.`_ebla_x`]"
    said = f"`nope` cannot be resolved. Did you mean one of the following? {listed}."
    assert without_internals(said, ()) == "`nope` cannot be resolved. Did you mean one of the following? [`o`.`id`]."
    lonely = "`nope` cannot be resolved. Did you mean one of the following? [`_ebla_old0`]. (line 25, pos 3)"
    assert without_internals(lonely, ()) == "`nope` cannot be resolved."
