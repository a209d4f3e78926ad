"""`CHECK` constraints: kept at every door, for new rows and for those that are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebla.base.failpoint import EXIT_CODE
from ebla.errors import ConstraintError, DuplicateNameError, SqlError, TypeMismatchError, UnknownNameError, UsageError
from support.processes import Sharing
from support.warehouse import connect, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark

DIRECT = "n >= 0 AND n < 100"
BY_SPARK = "length(trim(name)) < 5"
LONG = "much too long"


@pytest.fixture(scope="module")
def db(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    with connect(tmp_path_factory.mktemp("check") / "warehouse", spark, tablets=2, batch_rows_max=50) as db:
        db.sql(
            f"CREATE TABLE t (id BIGINT PRIMARY KEY, n INT CHECK ({DIRECT}), "
            f"name STRING, CONSTRAINT short_name CHECK ({BY_SPARK}))"
        )
        db.sql("CREATE TABLE d (id BIGINT PRIMARY KEY, n INT CONSTRAINT small CHECK (n < 100 OR id > n))")
        yield db


@pytest.fixture
def filled(db: ebla.Database) -> ebla.Database:
    db.sql("TRUNCATE t")
    db.table("t").upsert([{"id": 1, "n": 1, "name": "a"}, {"id": 2, "n": None, "name": None}])
    return db


FOUND = f"t: expected rows that fulfil constraint t_n_check, CHECK ({DIRECT}), found one with id = "
FOUND_NAME = f"t: expected rows that fulfil constraint short_name, CHECK ({BY_SPARK}), found one with id = "


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO t VALUES (3, 5, 'b'), (4, 100, 'b')", f"{FOUND}4, n = 100"),
        (f"INSERT INTO t VALUES (3, 5, '{LONG}')", f"{FOUND_NAME}3, name = '{LONG}'"),
        ("UPSERT INTO t VALUES (1, -1, NULL)", f"{FOUND}1, n = -1"),
        ("UPDATE t SET n = n - 2 WHERE id = 1", f"{FOUND}1, n = -1"),
        (f"UPDATE t SET name = '{LONG}'", FOUND_NAME),
        (
            "MERGE INTO t USING (SELECT 9 AS i, 100 AS n) s ON t.id = s.i "
            "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.i, s.n)",
            f"{FOUND}9, n = 100",
        ),
        ("MERGE INTO t USING (SELECT 1 AS i) s ON t.id = s.i WHEN MATCHED THEN UPDATE SET n = -7", f"{FOUND}1, n = -7"),
        ("INSERT INTO t SELECT id + 10, CAST(id AS INT), NULL FROM range(0, 200)", FOUND),
        (f"INSERT INTO t SELECT id + 10, 1, '{LONG}' FROM range(0, 200)", FOUND_NAME),
    ],
)
def test_statements_keep_them(filled, statement, message):
    with refused(filled, ConstraintError, message):
        filled.sql(statement)


def test_null_passes_and_so_do_good_rows_and_deletes(filled):
    filled.sql("INSERT INTO t SELECT id + 10, CAST(id % 100 AS INT), NULL FROM range(0, 200)")
    filled.sql("INSERT INTO t VALUES (3, NULL, '   b   ')")
    filled.sql("DELETE FROM t WHERE id >= 10")
    assert [row[0] for row in rows(filled, "t")] == [1, 2, 3]


def test_rows_of_python_and_files_keep_them(filled, spark, tmp_path):
    table = filled.table("t")
    given = [{"id": 5, "n": 1}, {"id": 6, "n": 100}]
    for some in (given, pa.Table.from_pylist(given), spark.createDataFrame([(5, 1), (6, 100)], "id BIGINT, n INT")):
        with refused(filled, ConstraintError, f"{FOUND}6, n = 100"):
            table.upsert(some)
    (tmp_path / "a.csv").write_text("id,n\n5,1\n6,100\n")
    (tmp_path / "b.json").write_text('{"id": 5, "n": 1}\n{"id": 6, "n": 100}\n')
    pq.write_table(pa.Table.from_pylist(given), tmp_path / "c.parquet")
    for name in ("a.csv", "b.json", "c.parquet"):
        with refused(filled, ConstraintError, f"{FOUND}6, n = 100"):
            filled.sql("LOAD INTO t FROM :path", path=tmp_path / name)
    table.delete([{"id": 1}])


def test_the_data_source_keeps_them_or_says_that_it_cannot(db, spark):
    where = db.context.catalog.where
    source = spark.createDataFrame([(1, 5), (2, 100)], "id BIGINT, n INT")
    before = rows(db, "d")
    with pytest.raises(Exception, match=r"CHECK \(n < 100 OR id > n\), found one with id = 2, n = 100"):
        source.write.format("ebla").option("url", where).option("table", "d").mode("append").save()
    assert rows(db, "d") == before
    source.filter("id = 1").write.format("ebla").option("url", where).option("table", "d").mode("append").save()
    assert (1, 5) in rows(db, "d")
    with pytest.raises(Exception, match=r"found short_name, CHECK .*; write with db.table"):
        source.write.format("ebla").option("url", where).option("table", "t").mode("append").save()


def test_one_is_added_if_all_rows_keep_it_and_dropped_again(filled):
    filled.sql("ALTER TABLE t ADD CONSTRAINT few CHECK (id < 1000 AND n <> 7)")
    with refused(filled, ConstraintError, "constraint few", "id = 9, n = 7"):
        filled.sql("INSERT INTO t VALUES (9, 7, NULL)")
    assert filled.sql("DESCRIBE t").rows()[-1] == ("# check few", "id < 1000 AND n <> 7", None, None, None, None)
    assert "CONSTRAINT few CHECK (id < 1000 AND n <> 7)" in filled.sql("SHOW CREATE TABLE t").rows()[0][0]
    filled.sql("ALTER TABLE t DROP CONSTRAINT FEW")
    filled.sql("ALTER TABLE t DROP CONSTRAINT IF EXISTS few")
    filled.sql("INSERT INTO t VALUES (9, 7, NULL)")
    before = filled.sql("DESCRIBE t").rows()
    with pytest.raises(ConstraintError, match=r"constraint few, CHECK .*, found one with id = 9, n = 7"):
        filled.sql("ALTER TABLE t ADD CONSTRAINT few CHECK (n <> 7)")
    with pytest.raises(ConstraintError, match="id = 1, name = 'a'"):
        filled.sql("ALTER TABLE t ADD CHECK (upper(name) <> 'A')")
    assert filled.sql("DESCRIBE t").rows() == before


def test_a_column_that_one_names_stays_as_it_is(filled):
    for change in ("DROP COLUMN n", "RENAME COLUMN n TO m", "ALTER COLUMN n TYPE BIGINT"):
        with refused(filled, UsageError, "t (n): expected that no constraint names it, found t_n_check"):
            filled.sql(f"ALTER TABLE t {change}")
    filled.sql("CREATE TABLE c (id INT, n INT CHECK (n > 0), m INT CHECK (m > 0))")
    filled.sql("ALTER TABLE c DROP COLUMN n CASCADE")
    assert [row[0] for row in filled.sql("DESCRIBE c").rows()] == ["id", "m", "# check c_m_check"]
    filled.sql("ALTER TABLE c RENAME TO c2")
    with refused(filled, ConstraintError, "c2: ", "m = 0"):
        filled.sql("INSERT INTO c2 VALUES (1, 0)")
    filled.sql("DROP TABLE c2")


def test_a_table_of_a_query_keeps_them(filled):
    with refused(filled, ConstraintError, "q: ", "id = 1"):
        filled.sql("CREATE TABLE q (PRIMARY KEY (id), CHECK (id > 1)) AS SELECT id FROM t")
    filled.sql("CREATE TABLE q (CHECK (id > 0)) AS SELECT id FROM t")
    with refused(filled, ConstraintError, "q_id_check", "id = 0"):
        filled.sql("INSERT INTO q VALUES (0)")
    filled.sql("DROP TABLE q")


@pytest.mark.parametrize(
    ("declared", "kind", "message"),
    [
        ("CHECK (nope > 0)", UnknownNameError, "nope"),
        ("CHECK (n + 1)", TypeMismatchError, "expected a condition, found int"),
        ("CHECK (n > rand())", UsageError, "deterministic"),
        ("CHECK (n > 0 AND current_date() > DATE '2020-01-01')", UsageError, "deterministic"),
        ("CHECK (n > (SELECT max(id) FROM t))", UsageError, "of one row"),
        ("CHECK (max(n) > 1)", UsageError, "of one row"),
        ("CONSTRAINT a CHECK (n > 0), CONSTRAINT A CHECK (n > 1)", DuplicateNameError, "found A there already"),
        ("CONSTRAINT `a\nb` CHECK (n > 0)", UsageError, "control characters"),
        ("CHECK ()", SqlError, "expected a condition"),
        ("CONSTRAINT a UNIQUE (n)", SqlError, "expected CHECK"),
    ],
)
def test_what_is_no_condition_of_one_row_is_refused(db, declared, kind, message):
    with refused(db, kind, message):
        db.sql(f"CREATE TABLE x (n INT, {declared})")


def test_a_process_that_dies_between_leaves_one_that_new_rows_keep(
    spark: SparkSession, spark_processes: Sharing, tmp_path: Path
):
    where, add = tmp_path / "warehouse", "ALTER TABLE t ADD CONSTRAINT c CHECK (n > 0)"
    with connect(where, spark) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        db.sql("INSERT INTO t VALUES (1, 0)")
        status = spark_processes.run("support.build_tasks:run", str(where), add, {}, failpoints="constraint.added=exit")
        assert status == EXIT_CODE
        with refused(db, ConstraintError, "id = 2, n = -1"):
            db.sql("INSERT INTO t VALUES (2, -1)")
        db.sql("UPDATE t SET n = 1")
        db.sql(add)
        with refused(db, DuplicateNameError, "found c there already"):
            db.sql(add)
