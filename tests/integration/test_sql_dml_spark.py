"""Writes as queries, run by Spark over views whose rows are written here; and references against Spark's parser."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ebla.sql.dml import MERGE_CARDINALITY, delete_query, insert_query, merge_query, update_query
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.sql.refs import find, rewrite
from ebla.sql.statements import Delete, Insert, Merge, Update
from ebla.sql.target import checked
from support.sql_queries import COMMON, SPARK, TPCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Run = Callable[..., list[tuple[Any, ...]]]

COLUMNS = ["id", "name", "total"]
TYPES = {"id": "BIGINT", "name": "STRING", "total": "INT"}
HIDDEN = ["_row_txn", "_row_seq"]


def build(text: str, columns: Sequence[str], key: Sequence[str], hidden: Sequence[str], types: Any) -> Query:
    match parse(text):
        case Insert() as stmt:
            return insert_query(stmt, columns, key, hidden)
        case Update() as stmt:
            return update_query(stmt, columns, key, hidden, types)
        case Delete() as stmt:
            return delete_query(stmt, columns, key, hidden)
        case Merge() as stmt:
            return merge_query(stmt, columns, key, hidden, types)
        case other:
            raise AssertionError(f"expected a write, found {other}")


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> None:
    """Views under other names than the tables', so that a reference which is missed cannot be read."""
    spark.sql(
        "SELECT * FROM VALUES (1L, 'a', 10), (2L, 'b', 20), (3L, NULL, 30), (4L, 'd', NULL) AS v(id, name, total)"
    ).createOrReplaceTempView("view_orders")
    spark.sql("SELECT *, 7L AS _row_txn, id * 10 AS _row_seq FROM view_orders").createOrReplaceTempView("hidden_orders")
    spark.sql(
        "SELECT * FROM VALUES (2L, 'B', 200), (3L, 'C', NULL), (5L, 'E', 500) AS v(id, name, total)"
    ).createOrReplaceTempView("view_news")
    spark.sql("SELECT * FROM VALUES (1), (3) AS v(order_id)").createOrReplaceTempView("view_marks")
    spark.sql("SELECT 1 AS `a b`, 2 AS `c``d`, 3 AS `select`").createOrReplaceTempView("view_odd")


@pytest.fixture
def frame(spark: SparkSession, tables: None) -> Callable[..., DataFrame]:
    def run(
        text: str,
        *,
        columns: Sequence[str] = COLUMNS,
        key: Sequence[str] = ("id",),
        hidden: Sequence[str] = (),
        types: Any = TYPES,
        args: dict[str, Any] | None = None,
    ) -> DataFrame:
        query = build(text, columns, key, hidden, types)
        view = rewrite(query, lambda ref: f"{'hidden' if hidden and ref.target else 'view'}_{ref.name.lower()}")
        return spark.sql(view, args) if args else spark.sql(view)

    return run


@pytest.fixture
def rows(frame: Callable[..., DataFrame]) -> Run:
    """The rows of a write, sorted, its `_kind` first."""

    def run(text: str, **options: Any) -> list[tuple[Any, ...]]:
        result = frame(text, **options)
        expected = [*options.get("columns", COLUMNS), *options.get("hidden", ()), "_kind"]
        assert result.columns == expected
        return sorted(((row[-1], *row[:-1]) for row in result.collect()), key=str)

    return run


# ---- INSERT ---------------------------------------------------------------------------------------------


def test_insert_values_in_the_order_of_the_table(rows):
    assert rows("INSERT INTO orders VALUES (9, 'x', 1), (8, :n, NULL)", args={"n": "y"}) == [
        ("insert", 8, "y", None),
        ("insert", 9, "x", 1),
    ]


def test_insert_into_listed_columns_leaves_the_others_null(rows):
    assert rows("INSERT INTO orders (TOTAL, id) VALUES (1, 9)") == [("insert", 9, None, 1)]


def test_upsert_from_a_query_with_its_own_names(rows):
    text = "UPSERT INTO orders (id, name) WITH x AS (SELECT id, upper(name) FROM orders) SELECT * FROM x WHERE id < 3"
    assert rows(text) == [("upsert", 1, "A", None), ("upsert", 2, "B", None)]


def test_inserted_rows_have_no_hidden_key(rows):
    assert rows("INSERT INTO orders VALUES (9, 'x', 1)", key=HIDDEN, hidden=HIDDEN) == [
        ("insert", 9, "x", 1, None, None)
    ]


@pytest.mark.parametrize("source", ["(SELECT 1, 'a', 2)", "FROM news", "TABLE news", "VALUES struct(1, 'a', 2)"])
def test_insert_from_any_query(rows, source):
    assert all(row[0] == "insert" for row in rows(f"INSERT INTO orders {source}"))


def test_spark_reports_another_number_of_columns(frame):
    with pytest.raises(Exception, match="ASSIGNMENT_ARITY_MISMATCH"):
        frame("INSERT INTO orders SELECT 1, 2")


# ---- UPDATE ---------------------------------------------------------------------------------------------


def test_update_evaluates_on_the_old_row(rows):
    text = "UPDATE orders SET total = total + id, name = concat(name, '-', total) WHERE id <= 2"
    assert rows(text) == [("upsert", 1, "a-10", 11), ("upsert", 2, "b-20", 22)]


def test_update_where_the_condition_is_null_changes_nothing(rows):
    assert rows("UPDATE orders SET name = 'x' WHERE total > 15 AND name <> 'q'") == [("upsert", 2, "x", 20)]


def test_update_with_a_correlated_subquery_and_an_alias(rows):
    text = """UPDATE orders AS o SET o.total = (SELECT max(n.total) FROM news n WHERE n.id = o.id)
        WHERE EXISTS (SELECT 1 FROM news WHERE news.id = o.id)"""
    assert rows(text) == [("upsert", 2, "b", 200), ("upsert", 3, None, None)]


def test_update_reads_the_table_under_its_own_name(rows):
    text = "UPDATE orders SET total = (SELECT max(total) FROM orders) WHERE orders.id = 1"
    assert rows(text) == [("upsert", 1, "a", 30)]


def test_an_unqualified_column_of_a_subquery_is_the_subquerys(rows):
    text = "UPDATE orders SET name = 'x' WHERE id IN (SELECT order_id FROM marks WHERE order_id = id AND total = 30)"
    assert rows(text) == [("upsert", 3, "x", 30)]


def test_update_that_shifts_consecutive_keys(rows):
    assert rows("UPDATE orders SET id = id + 1 WHERE id <= 3") == [
        ("delete", 1, "a", 10),
        ("delete", 2, "b", 20),
        ("delete", 3, None, 30),
        ("insert", 2, "a", 10),
        ("insert", 3, "b", 20),
        ("insert", 4, None, 30),
    ]


def test_update_of_the_key_moves_only_rows_whose_key_changes(rows):
    assert rows("UPDATE orders SET id = greatest(id, 3), total = 0") == [
        ("delete", 1, "a", 10),
        ("delete", 2, "b", 20),
        ("insert", 3, "a", 0),
        ("insert", 3, "b", 0),
        ("upsert", 3, None, 0),
        ("upsert", 4, "d", 0),
    ]


def test_a_key_with_null_is_compared_like_a_value(rows):
    text = "UPDATE orders SET name = IF(id = 4, 'e', name)"
    assert rows(text, key=["name"]) == [
        ("delete", 4, "d", None),
        ("insert", 4, "e", None),
        ("upsert", 1, "a", 10),
        ("upsert", 2, "b", 20),
        ("upsert", 3, None, 30),
    ]


def test_a_moved_key_keeps_every_digit(rows, spark):
    big = 2**53 + 1
    spark.sql(f"SELECT {big}L AS id, 'a' AS name, 1 AS total").createOrReplaceTempView("view_big")
    assert rows("UPDATE big SET id = 5e0") == [("delete", big, "a", 1), ("insert", 5, "a", 1)]


def test_update_of_a_table_without_a_primary_key_carries_the_hidden_one(rows):
    assert rows("UPDATE orders SET id = 9 WHERE id = 2", key=HIDDEN, hidden=HIDDEN) == [("upsert", 9, "b", 20, 7, 20)]


def test_odd_column_names(rows):
    options = {"columns": ["a b", "c`d", "select"], "key": ["a b"], "types": None}
    assert rows("UPDATE odd SET `c``d` = `a b` + `select`", **options) == [("upsert", 1, 4, 3)]
    assert rows("UPDATE odd SET `a b` = 9", **options) == [("delete", 1, 2, 3), ("insert", 9, 2, 3)]
    assert rows("DELETE FROM odd WHERE odd.`c``d` = 2", **options) == [("delete", 1, 2, 3)]
    text = "MERGE INTO odd USING (SELECT 1 AS `a b`, 8 AS `c``d`, 9 AS `select`) s ON odd.`a b` = s.`a b` "
    assert rows(text + "WHEN MATCHED THEN UPDATE SET *", **options) == [("upsert", 1, 8, 9)]


# ---- DELETE ---------------------------------------------------------------------------------------------


def test_delete_with_exists(rows):
    text = "DELETE FROM orders WHERE NOT EXISTS (SELECT 1 FROM marks WHERE order_id = orders.id)"
    assert rows(text) == [("delete", 2, "b", 20), ("delete", 4, "d", None)]


def test_delete_where_the_condition_is_null_removes_nothing(rows):
    assert rows("DELETE FROM orders WHERE total <> 10") == [("delete", 2, "b", 20), ("delete", 3, None, 30)]


def test_delete_all_with_the_hidden_key(rows):
    found = rows("DELETE FROM orders o WHERE o.id < :n OR o.id > 3", key=HIDDEN, hidden=HIDDEN, args={"n": 2})
    assert found == [("delete", 1, "a", 10, 7, 10), ("delete", 4, "d", None, 7, 40)]
    assert len(rows("DELETE FROM orders")) == 4


# ---- MERGE ----------------------------------------------------------------------------------------------


def test_merge_update_and_insert_by_name(rows):
    text = """MERGE INTO orders o USING news n ON o.id = n.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    assert rows(text) == [("insert", 5, "E", 500), ("upsert", 2, "B", 200), ("upsert", 3, "C", None)]


def test_merge_with_every_kind_of_clause(rows):
    text = """MERGE INTO orders USING news ON orders.id = news.id
        WHEN MATCHED AND news.total IS NULL THEN DELETE
        WHEN MATCHED THEN UPDATE SET total = orders.total + news.total
        WHEN NOT MATCHED AND total > 400 THEN INSERT (id, total) VALUES (id, total / 5)
        WHEN NOT MATCHED BY SOURCE AND total IS NULL THEN DELETE
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = upper(name), total = total - 1"""
    assert rows(text) == [
        ("delete", 3, None, 30),
        ("delete", 4, "d", None),
        ("insert", 5, None, 100),
        ("upsert", 1, "A", 9),
        ("upsert", 2, "b", 220),
    ]


def test_merge_takes_the_first_clause_that_is_true_and_null_is_not(rows):
    text = """MERGE INTO orders o USING news n ON o.id = n.id
        WHEN MATCHED AND n.total > 1000 THEN DELETE
        WHEN MATCHED AND n.total > 100 THEN UPDATE SET name = 'first'
        WHEN MATCHED AND n.total > 10 THEN UPDATE SET name = 'second'
        WHEN MATCHED AND NOT (n.total > 10) THEN UPDATE SET name = 'third'
        WHEN NOT MATCHED AND n.total < 10 THEN INSERT *"""
    assert rows(text) == [("upsert", 2, "first", 20)]


def test_merge_joins_on_null_as_unequal(rows):
    text = """MERGE INTO orders o USING (SELECT CAST(NULL AS STRING) AS name, 9L AS id) s ON o.name = s.name
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"""
    assert rows(text) == [("insert", 9, None, None)]


def test_merge_only_inserts(rows):
    text = "MERGE INTO orders USING news n ON orders.id = n.id WHEN NOT MATCHED THEN INSERT VALUES (id, 'new', 0)"
    assert rows(text) == [("insert", 5, "new", 0)]


def test_merge_only_by_source(rows):
    text = "MERGE INTO orders o USING news n ON o.id = n.id WHEN NOT MATCHED BY SOURCE AND id < 4 THEN DELETE"
    assert rows(text) == [("delete", 1, "a", 10)]


def test_merge_that_changes_keys(rows):
    text = """MERGE INTO orders o USING news n ON o.id = n.id
        WHEN MATCHED THEN UPDATE SET id = IF(o.id = 2, 12, o.id), total = n.total
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET id = id * 100"""
    assert rows(text) == [
        ("delete", 1, "a", 10),
        ("delete", 2, "b", 20),
        ("delete", 4, "d", None),
        ("insert", 100, "a", 10),
        ("insert", 12, "b", 200),
        ("insert", 400, "d", None),
        ("upsert", 3, None, None),
    ]


def test_merge_with_hidden_keys(rows):
    text = """MERGE INTO orders o USING news n ON o.id = n.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"""
    assert rows(text, key=HIDDEN, hidden=HIDDEN) == [
        ("delete", 1, "a", 10, 7, 10),
        ("delete", 4, "d", None, 7, 40),
        ("insert", 5, "E", 500, None, None),
        ("upsert", 2, "B", 200, 7, 20),
        ("upsert", 3, "C", None, 7, 30),
    ]


def test_merge_without_an_alias_of_the_source_and_with_columns(rows):
    text = "MERGE INTO orders USING (SELECT 2L AS k) ON id = k WHEN MATCHED THEN DELETE"
    assert rows(text) == [("delete", 2, "b", 20)]
    text = "MERGE INTO orders USING (SELECT 2L, 5) AS s (k, v) ON id = k WHEN MATCHED THEN UPDATE SET total = v"
    assert rows(text) == [("upsert", 2, "b", 5)]


def test_merge_conditions_may_hold_subqueries_and_parameters(rows):
    text = """MERGE INTO orders o USING news n ON o.id = n.id
        WHEN MATCHED AND EXISTS (SELECT 1 FROM marks WHERE order_id = o.id) THEN UPDATE SET name = :name
        WHEN NOT MATCHED AND n.id IN (SELECT order_id + 2 FROM marks) THEN INSERT *"""
    assert rows(text, args={"name": "m"}) == [("insert", 5, "E", 500), ("upsert", 3, "m", 30)]


def test_merge_evaluates_only_the_clause_that_fires(rows):
    text = """MERGE INTO orders o USING news n ON o.id = n.id
        WHEN MATCHED AND n.total IS NULL THEN UPDATE SET total = 1
        WHEN MATCHED THEN UPDATE SET total = 1000 / n.total
        WHEN NOT MATCHED THEN INSERT (id, total) VALUES (n.id, 1000 / (n.id - 4))
        WHEN NOT MATCHED BY SOURCE AND id = 4 THEN DELETE
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET total = 10 / (id - 2)"""
    assert rows(text) == [
        ("delete", 4, "d", None),
        ("insert", 5, None, 1000),
        ("upsert", 1, "a", -10),
        ("upsert", 2, "b", 5),
        ("upsert", 3, None, 1),
    ]


DOUBLED = "(SELECT * FROM news UNION ALL SELECT * FROM news)"


@pytest.mark.parametrize(
    "clauses",
    [
        "WHEN MATCHED THEN UPDATE SET *",
        "WHEN MATCHED AND n.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET total = 1",
        "WHEN MATCHED AND n.id = 2 THEN DELETE",
        "WHEN MATCHED THEN UPDATE SET id = n.id + 100 WHEN NOT MATCHED THEN INSERT *",
    ],
)
def test_merge_refuses_a_row_that_matches_twice(frame, clauses):
    with pytest.raises(Exception, match=f"MERGE INTO orders: {MERGE_CARDINALITY}"):
        frame(f"MERGE INTO orders o USING {DOUBLED} n ON o.id = n.id {clauses}").collect()


def test_merge_accepts_double_matches_that_do_nothing_or_only_delete(rows):
    merge = f"MERGE INTO orders o USING {DOUBLED} n ON o.id = n.id "
    assert rows(merge + "WHEN MATCHED THEN DELETE") == [("delete", 2, "b", 20), ("delete", 3, None, 30)]
    assert rows(merge + "WHEN MATCHED AND n.id > 9 THEN DELETE WHEN NOT MATCHED THEN INSERT *") == [
        ("insert", 5, "E", 500),
        ("insert", 5, "E", 500),
    ]


def test_merge_into_itself_from_an_older_version(rows):
    text = """MERGE INTO orders USING orders VERSION AS OF 1 AS old ON orders.id = old.id + 1
        WHEN MATCHED THEN UPDATE SET name = old.name WHEN NOT MATCHED THEN INSERT (id) VALUES (id + 1)"""
    assert rows(text) == [
        ("insert", 5, None, None),
        ("upsert", 2, "a", 20),
        ("upsert", 3, "b", 30),
        ("upsert", 4, None, None),
    ]


# ---- types ----------------------------------------------------------------------------------------------


def test_merge_gives_the_tables_types_whatever_the_clauses_say(frame, rows):
    text = """MERGE INTO orders o USING news n ON o.id = n.id
        WHEN MATCHED AND n.id = 2 THEN UPDATE SET total = 7L, id = 12.0
        WHEN MATCHED THEN UPDATE SET total = 8D, name = NULL
        WHEN NOT MATCHED THEN INSERT (id, total) VALUES (15Y, 3.00)"""
    assert [kind for _name, kind in frame(text).dtypes] == ["bigint", "string", "int", "string"]
    assert rows(text) == [
        ("delete", 2, "b", 20),
        ("insert", 12, "b", 7),
        ("insert", 15, None, 3),
        ("upsert", 3, None, 8),
    ]


def test_a_value_beside_a_wider_one_keeps_every_digit(rows, spark):
    big = 2**53 + 1
    spark.sql(
        f"SELECT * FROM VALUES (1L, 'a', {big}L), (2L, 'b', {big}L) AS v(id, name, total)"
    ).createOrReplaceTempView("view_wide")
    text = """MERGE INTO wide USING (SELECT EXPLODE(array(1, 2)) AS k) ON id = k
        WHEN MATCHED AND k = 1 THEN UPDATE SET total = 5e0 WHEN MATCHED THEN UPDATE SET name = 'x'"""
    assert rows(text, types=TYPES | {"total": "BIGINT"}) == [("upsert", 1, "a", 5), ("upsert", 2, "x", big)]


@pytest.mark.parametrize(
    ("type_text", "value", "expected"),
    [
        ("tinyint", "127L", 127),
        ("INT", "CAST(NULL AS STRING)", None),
        ("INT", "NULL", None),
        ("INT", "7.00", 7),
        ("INT", "7e0", 7),
        ("DECIMAL(4, 1)", "2", Decimal("2.0")),
        ("decimal(4,1)", "2.5D", Decimal("2.5")),
        ("double", "1.1", 1.1),
        ("double", "3L", 3.0),
        ("double", "double('infinity')", float("inf")),
        ("float", "0.5D", 0.5),
        ("string", "'x'", "x"),
        ("boolean", "true", True),
        ("date", "DATE '2026-01-02'", date(2026, 1, 2)),
        ("timestamp_ntz", "DATE '2026-01-02'", datetime(2026, 1, 2)),
        ("array<bigint>", "array(1, NULL, 3.0)", [1, None, 3]),
        ("array<array<int>>", "array(array(1L))", [[1]]),
        ("map<string,int>", "map('a', 1)", {"a": 1}),
        ("struct<a:int,b:string>", "named_struct('a', 1, 'b', 'x')", (1, "x")),
    ],
)
def test_values_that_fit_their_column(spark, type_text, value, expected):
    text = checked("`x`", type_text, "t.c")
    (row,) = spark.sql(f"SELECT {text} AS c, typeof({text}) AS t FROM (SELECT {value} AS x)").collect()
    assert row.c == expected
    assert row.t == type_text.lower().replace(" ", "")


@pytest.mark.parametrize(
    ("type_text", "value", "found"),
    [
        ("int", "8.5", "8.5"),
        ("int", "8.5D", "8.5"),
        ("int", "3000000000L", "3000000000"),
        ("int", "'7'", "7"),
        ("int", "double('nan')", "NaN"),
        ("decimal(4,1)", "2.55", "2.55"),
        ("decimal(4,1)", "12345", "12345"),
        ("double", "9007199254740993L", "9007199254740993"),
        ("float", "1e300", "1.0E300"),
        ("string", "5", "5"),
        ("date", "TIMESTAMP '2026-01-02 03:04:05'", "2026-01-02 03:04:05"),
        ("date", "'2026-01-02'", "2026-01-02"),
        ("array<int>", "array(1, 2.5)", "2.5"),
        ("struct<a:int,b:int>", "named_struct('b', 1, 'a', 2)", "{1, 2}"),
    ],
)
def test_values_that_do_not_fit_stop_the_job(spark, type_text, value, found):
    text = checked("`x`", type_text, "t.c")
    element = " element" if type_text.startswith("array") else ""
    message = f"EBLA:t.c{element}: expected {type_text.removeprefix('array<').rstrip('>') if element else type_text}"
    with pytest.raises(Exception, match=re.escape(f"{message}, found {found}")):
        spark.sql(f"SELECT {text} AS c FROM (SELECT {value} AS x)").collect()


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE orders SET id = id + 0.5",
        "MERGE INTO orders o USING news n ON o.id = n.id WHEN MATCHED THEN UPDATE SET total = n.id + 0.5",
        "MERGE INTO orders o USING news n ON o.id = n.id WHEN NOT MATCHED THEN INSERT (id) VALUES ('5')",
    ],
)
def test_a_write_that_would_change_a_value_is_refused(frame, text):
    with pytest.raises(Exception, match=r"EBLA:orders\.(id|total): expected (bigint|int), found"):
        frame(text).collect()


# ---- references -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def names_by_spark(spark: SparkSession) -> Callable[[str], list[str]]:
    """The relations in the plan of Spark's own parser, once CTEs are resolved."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    jvm: Any = spark._jvm
    resolve = jvm.org.apache.spark.sql.catalyst.analysis.CTESubstitution

    def found(text: str) -> list[str]:
        plan = resolve.apply(parser.parsePlan(text)).toString()
        return sorted(re.findall(r"UnresolvedRelation \[(.*?)\], \[", plan))

    return found


@pytest.mark.parametrize("text", [text for text, _expected in [*TPCH.values(), *COMMON, *SPARK]])
def test_references_agree_with_spark(names_by_spark, text):
    query = find(text)
    expected = names_by_spark(text)
    assert sorted(ref.name for ref in query.refs) == expected
    replaced = rewrite(query, lambda ref: f"view {ref.name}")
    assert names_by_spark(replaced) == [f"view {name}" for name in expected]


class Generator:
    """Random queries out of everything that a relation can be or stand in."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def some(self, make: Callable[[], str], most: int = 3) -> str:
        return ", ".join(make() for _ in range(self.random.randint(1, most)))

    def query(self, depth: int) -> str:
        if depth <= 0:
            return self.pick("SELECT 1", "TABLE t1", "VALUES (1, 2), (3, 4)", "SELECT * FROM T2", "FROM `t3`")
        body = self.random.choice([self.select, self.select, self.select, self.set_operation, self.pipe])(depth)
        if self.random.random() < 0.3:
            names = self.random.sample(["t1", "T2", "`t3`", "c1"], 2)
            ctes = ", ".join(f"{name}{self.pick('', ' AS')} ({self.query(depth - 1)})" for name in names)
            body = f"WITH {ctes} {body}"
        return body

    def select(self, depth: int) -> str:
        items = self.some(lambda: self.item(depth - 1))
        text = f"SELECT {self.pick('', 'DISTINCT ')}{items} FROM {self.some(lambda: self.relation(depth - 1))}"
        if self.random.random() < 0.2:
            text += " LATERAL VIEW explode(a) e AS x, y"
        if self.random.random() < 0.6:
            text += f" WHERE {self.expression(depth - 1)}"
        if self.random.random() < 0.3:
            text += f" GROUP BY a, b HAVING {self.expression(depth - 1)}"
        if self.random.random() < 0.2:
            text += " WINDOW w AS (PARTITION BY a, b ORDER BY c)"
        return text

    def set_operation(self, depth: int) -> str:
        operator = self.pick("UNION", "UNION ALL", "EXCEPT", "INTERSECT DISTINCT", "MINUS ALL")
        left, right = f"({self.query(depth - 1)})", self.pick("TABLE t1", f"({self.query(depth - 1)})")
        return f"{left} {operator} {right}{self.pick('', ' ORDER BY a, b LIMIT 3')}"

    def pipe(self, depth: int) -> str:
        steps = [
            f"WHERE {self.expression(depth - 1)}",
            f"{self.pick('', 'LEFT ')}JOIN {self.primary(depth - 1)} ON {self.expression(depth - 1)}",
            f"EXTEND {self.expression(depth - 1)} AS x, 2 AS y",
            "AGGREGATE sum(a), count(*) GROUP BY a, b",
            f"UNION ALL ({self.query(depth - 1)})",
            "AS p",
        ]
        chosen = self.random.sample(steps, self.random.randint(1, 3))
        return " |> ".join([f"FROM {self.relation(depth - 1)}", *chosen])

    def item(self, depth: int) -> str:
        return self.expression(depth) + self.pick("", " AS x", " AS `from`", " y")

    def table(self) -> str:
        return self.pick("t1", "T2", "`t3`", "t4", "window")

    def alias(self) -> str:
        return self.pick("", "", " x", " AS y", " AS `a b`", " version", " AS x (a, b)")

    def relation(self, depth: int) -> str:
        text = self.primary(depth)
        for _ in range(self.random.choice([0, 0, 1, 2])):
            join = self.pick("JOIN", "CROSS JOIN", "LEFT OUTER JOIN", "FULL JOIN", "LEFT SEMI JOIN", "ANTI JOIN")
            text += f" {join} {self.primary(depth - 1)}"
            text += self.pick("", f" ON {self.expression(depth - 1)}", " USING (a, b)")
        return text + self.pick("", "", "", " PIVOT (sum(a) FOR b IN (1, 2))", " UNPIVOT (v FOR n IN (a, b)) AS u")

    def primary(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.5:
            time = self.pick("", "", "", "t5 VERSION AS OF 3", "t6 TIMESTAMP AS OF now() - INTERVAL 1 DAY")
            return (time or self.table()) + self.pick("", "", " TABLESAMPLE (5 PERCENT)") + self.alias()
        return self.pick(
            f"({self.query(depth - 1)}){self.alias()}",
            f"LATERAL ({self.query(depth - 1)}){self.alias()}",
            f"({self.relation(depth - 1)}){self.alias()}",
            f"VALUES (1, 'FROM t'), (2, NULL) {self.pick('v', 'AS v (a, b)')}",
            f"VALUES 1 + 2, f({self.expression(depth - 1)}) AS v",
            f"range(1, 10){self.alias()}",
            f"LATERAL explode(array(1, 2)){self.alias()}",
            f"f(TABLE({self.table()}), 2){self.alias()}",
        )

    def operand(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.6:
            return self.pick("a", "x.from", "1", "'FROM t'", ":join", "m['a']", "a::map<int, int>", "-1.5e3", "`join`")
        return self.pick(
            f"({self.query(depth - 1)})",
            f"f({self.some(lambda: self.expression(depth - 1))})",
            f"CASE WHEN {self.expression(depth - 1)} THEN 1 ELSE {self.expression(depth - 1)} END",
            "extract(year FROM a)",
            f"trim(BOTH 'x' FROM {self.operand(depth - 1)})",
            "row_number() OVER (PARTITION BY a, b ORDER BY c)",
            f"filter(a, x -> x > {self.operand(depth - 1)})",
            f"count(*) FILTER (WHERE {self.expression(depth - 1)})",
            f"({self.expression(depth - 1)})",
        )

    def expression(self, depth: int) -> str:
        left = self.operand(depth)
        if depth <= 0 or self.random.random() < 0.4:
            return left
        return self.pick(
            f"{left} + {self.operand(depth - 1)}",
            f"({left}) IS NOT DISTINCT FROM {self.operand(depth - 1)}",
            f"({left}) IN ({self.query(depth - 1)})",
            f"EXISTS ({self.query(depth - 1)})",
            f"({left}) BETWEEN 1 AND ({self.query(depth - 1)})",
            f"({left}) IS NULL /* FROM x, */ -- FROM y\n",
        )


@pytest.mark.parametrize("seed", range(8))
def test_references_agree_with_spark_on_random_queries(names_by_spark, seed):
    from pyspark.errors import AnalysisException

    generator = Generator(seed)
    compared = 0
    for _ in range(100):
        text = generator.query(3)
        try:
            expected = names_by_spark(text)
        except AnalysisException:
            continue
        query = find(text)
        assert sorted(ref.name for ref in query.refs) == expected, text
        replaced = rewrite(query, lambda ref: f"view {ref.name}")
        assert names_by_spark(replaced) == [f"view {name}" for name in expected], replaced
        compared += 1
    assert compared > 50, "most queries should be ones that Spark accepts"
