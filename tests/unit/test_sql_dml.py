"""What the builders of writes refuse, and which tables their queries name. Their rows: see integration."""

from __future__ import annotations

from typing import TypeVar

import pytest

from ebla.errors import DuplicateNameError, SqlError, UnknownNameError
from ebla.sql.dml import delete_query, insert_query, merge_query, update_query
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.sql.refs import rewrite
from ebla.sql.statements import Delete, Insert, Merge, Update

COLUMNS = ["id", "name", "odd `column`"]
KEY = ["id"]
S = TypeVar("S", Insert, Update, Delete, Merge)


def statement(text: str, kind: type[S]) -> S:
    parsed = parse(text)
    assert isinstance(parsed, kind)
    return parsed


def built(text: str) -> Query:
    match parse(text):
        case Insert() as stmt:
            return insert_query(stmt, COLUMNS, KEY)
        case Update() as stmt:
            return update_query(stmt, COLUMNS, KEY)
        case Delete() as stmt:
            return delete_query(stmt, COLUMNS, KEY)
        case Merge() as stmt:
            return merge_query(stmt, COLUMNS, KEY)
        case other:
            raise AssertionError(f"expected a write, found {other}")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("INSERT INTO t (id, nme) VALUES (1, 2)", UnknownNameError, "table t has no column nme; its columns are id"),
        ("INSERT INTO t (id, ID) VALUES (1, 2)", DuplicateNameError, "column id of table t is listed twice"),
        ("INSERT INTO t VALUES (1, 2)", SqlError, r"expected 3 values \(id, name, .*\), found 2 in each row"),
        ("INSERT INTO t VALUES (1)", SqlError, "found 1 in each row"),
        ("INSERT INTO t VALUES (f(1, 2), (3, 4))", SqlError, "found 2 in each row"),
        ("UPDATE t SET nme = 1", UnknownNameError, "table t has no column nme"),
        ("UPDATE t SET name = 1, NAME = 2", DuplicateNameError, "column name of table t is assigned twice"),
        ("UPDATE t SET _row_seq = 1", UnknownNameError, "table t has no column _row_seq"),
        (
            "MERGE INTO t USING u ON true WHEN MATCHED THEN UPDATE SET nme = 1",
            UnknownNameError,
            "table t has no column nme",
        ),
        (
            "MERGE INTO t USING u ON true WHEN MATCHED THEN UPDATE SET name = 1, name = 2",
            DuplicateNameError,
            "column name of table t is assigned twice",
        ),
        (
            "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT (id, id) VALUES (1, 2)",
            DuplicateNameError,
            "column id of table t is listed twice",
        ),
        (
            "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT VALUES (1, 2)",
            SqlError,
            "MERGE INTO t: expected 3 values to insert .* found 2",
        ),
    ],
)
def test_refusals(text, error, message):
    with pytest.raises(error, match=message):
        built(text)


@pytest.mark.parametrize(
    "values",
    ["(struct(1, 2, 3))", "struct(1, 2, 3)", "((1, 2, 3))", "(1, ')', array(1, 2)), (1, (2), (SELECT 3, 4))"],
)
def test_values_that_only_spark_can_count_are_left_to_it(values):
    assert built(f"INSERT INTO t VALUES {values}").text


@pytest.mark.parametrize(
    ("text", "refs"),
    [
        ("INSERT INTO t SELECT * FROM t JOIN u", [("t", False), ("u", False)]),
        ("UPDATE t SET name = (SELECT max(x) FROM t)", [("t", False), ("t", True)]),
        ("UPDATE t AS x SET id = id + 1 WHERE id IN (SELECT id FROM u)", [("t", True), ("u", False)]),
        ("DELETE FROM t WHERE id IN (SELECT id FROM t)", [("t", True), ("t", False)]),
        (
            "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND EXISTS "
            "(SELECT 1 FROM u) THEN DELETE WHEN NOT MATCHED THEN INSERT *",
            [("u", False), ("t", True), ("t", False)],
        ),
    ],
)
def test_the_target_is_marked_among_the_references(text, refs):
    assert [(ref.name, ref.target) for ref in built(text).refs] == refs


def test_names_are_quoted():
    text = rewrite(built("DELETE FROM `t``u`"), lambda ref: "v")
    assert "`t``u`.`odd ``column``` AS `odd ``column```" in text
    assert text.endswith("FROM `v` AS `t``u`")


def test_assigned_values_are_checked_where_types_are_given_and_old_ones_meet_them():
    types = {"ID": "BIGINT", "name": "STRING"}
    moving = update_query(statement("UPDATE t SET NAME = 1, id = 2", Update), COLUMNS, KEY, types=types).text
    assert "AS BIGINT)" in moving
    assert "AS STRING)" in moving
    staying = update_query(statement("UPDATE t SET name = 1", Update), COLUMNS, KEY, types=types).text
    assert "CAST" not in staying


def test_an_update_that_keeps_the_key_is_one_select():
    assert built("UPDATE t SET name = 'x'").text.count("SELECT") == 1
    assert "explode" in built("UPDATE t SET id = 1").text


def test_a_table_without_a_primary_key_cannot_move_rows():
    update = statement("UPDATE t SET id = 1", Update)
    query = update_query(update, COLUMNS, ["_row_txn", "_row_seq"], hidden=["_row_txn", "_row_seq"])
    assert "explode" not in query.text
    assert "`t`.`_row_txn` AS `_row_txn`" in query.text
