"""`SHOW CREATE`, definitions as text, patterns of names, and errors that name the right statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ebla.catalog import reads
from ebla.errors import SqlError, UnknownNameError, UsageError
from support.warehouse import connect, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark

ORDERS = """CREATE TABLE Orders (
  id BIGINT,
  `a customer` STRING NOT NULL COMMENT 'it''s "who"',
  total DECIMAL(12,2),
  `primary` MAP<STRING, ARRAY<INT>>,
  detail STRUCT<`x y`: INT, b: STRING>,
  PRIMARY KEY (id)
) COMMENT 'since 2019' WITH (tablets = 8)"""


@pytest.fixture(scope="module")
def db(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    with connect(tmp_path_factory.mktemp("show") / "warehouse", spark, tablets=2) as db:
        db.sql(ORDERS)
        db.sql("CREATE TABLE log (line STRING, at TIMESTAMP)")
        db.sql(
            "CREATE MATERIALIZED VIEW card AS SELECT id, `a customer` AS who, total FROM orders -- all\n WHERE id > 0"
        )
        db.sql(
            "CREATE MATERIALIZED VIEW Sums (who, `how many`) WITH (tablets = 4, refresh = 'incremental') AS "
            "SELECT `a customer`, count(*) FROM orders GROUP BY `a customer`"
        )
        db.sql("COMMENT ON TABLE sums IS 'per customer'")
        db.sql(
            "CREATE UNIQUE INDEX by_who ON orders (lower(`a customer`), total DESC) INCLUDE (`primary`) WHERE total > 1"
        )
        db.sql("CREATE INDEX later ON card (who) WITH (build = 'deferred')")
        db.sql(
            "CREATE ASYNC HANDLER shop CONSUMER c PROCESS card, Sums, INPUT orders CHANGEFEED f AS BATCH "
            "WITH (epoch_period_s = 5, should_run = false)"
        )
        yield db


NAMES = [("TABLE", "orders"), ("TABLE", "log"), ("MATERIALIZED VIEW", "card"), ("MATERIALIZED VIEW", "SUMS"),
         ("INDEX", "by_who"), ("INDEX", "later"), ("HANDLER", "shop")]  # fmt: skip


def shown(db: ebla.Database, kind: str, name: str) -> str:
    [(text,)] = db.sql(f"SHOW CREATE {kind} {name}").rows()
    assert isinstance(text, str)
    return text


def shape(db: ebla.Database, name: str) -> object:
    """All that a relation is defined by, but for its number and its files."""
    with db.context.catalog.reading() as connection:
        found = reads.relation(connection, name)
        options = {k: v for k, v in found.options.items() if k != "inputs"}
    return found.name, found.kind, found.columns, found.tablets, found.replication, found.comment, options


def test_what_is_shown_creates_the_same_again(db: ebla.Database, spark: SparkSession, tmp_path: Path):
    with connect(tmp_path / "again", spark, tablets=2) as again:
        for kind, name in NAMES:
            text = shown(db, kind, name)
            again.sql(text)
            assert shown(again, kind, name) == text
            if kind != "HANDLER":
                assert shape(again, name) == shape(db, name)
        assert rows(again, "SELECT * FROM system.handlers") == rows(db, "SELECT * FROM system.handlers")


def test_the_text_is_for_people_too(db: ebla.Database):
    assert shown(db, "TABLE", "log") == (
        "CREATE TABLE log (\n  line STRING,\n  at TIMESTAMP\n) WITH (tablets = 2, replication = 1)"
    )
    assert shown(db, "MATERIALIZED VIEW", "card") == (
        "CREATE MATERIALIZED VIEW card PRIMARY KEY (id) WITH (tablets = 2, replication = 1) AS\n"
        "SELECT id, `a customer` AS who, total FROM orders -- all\n WHERE id > 0"
    )


def test_definitions_are_readable_as_text(db: ebla.Database):
    text = "SELECT id, `a customer` AS who, total FROM orders -- all\n WHERE id > 0"
    assert ("card", text) in rows(db, "SELECT name, definition FROM system.views")
    assert db.sql("DESCRIBE card").rows()[-1] == ("# definition", text, None, None, None, None)
    assert [row[0] for row in db.sql("DESCRIBE log").rows()] == ["line", "at"]


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SHOW TABLES LIKE 'o%'", ["Orders"]),
        ("SHOW TABLES LIKE 'ORD*'", ["Orders"]),
        ("SHOW TABLES LIKE 'l_g'", ["log"]),
        ("SHOW TABLES LIKE 'l\\\\_g'", []),
        ("SHOW TABLES LIKE '%'", ["Orders", "Sums", "card", "log"]),
        ("SHOW TABLES LIKE 'o.%'", []),
        ("SHOW VIEWS LIKE '%um%'", ["Sums"]),
        ("SHOW MATERIALIZED VIEWS LIKE 'c%'", ["card"]),
        ("SHOW INDEXES LIKE 'by%'", ["by_who"]),
        ("SHOW HANDLERS LIKE 's%'", ["shop", "sys$dictionary"]),
    ],
)
def test_show_takes_a_pattern(db: ebla.Database, statement: str, names: list[str]):
    assert [row[0] for row in db.sql(statement).rows()] == names


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "DROP TABLE card",
            "card: expected a table, found a view; DROP MATERIALIZED VIEW card is the statement for it",
        ),
        ("DROP TABLE IF EXISTS card", "DROP MATERIALIZED VIEW card is the statement for it"),
        ("DROP TABLE by_who", "by_who: expected a table, found an index; DROP INDEX by_who is the statement for it"),
        (
            "DROP MATERIALIZED VIEW orders",
            "Orders: expected a view, found a table; DROP TABLE Orders is the statement for it",
        ),
        ("DROP MATERIALIZED VIEW IF EXISTS by_who", "found an index; DROP INDEX by_who is the statement for it"),
        ("DROP INDEX orders", "Orders: expected an index, found a table; DROP TABLE Orders is the statement for it"),
        ("DROP INDEX IF EXISTS card", "found a view; DROP MATERIALIZED VIEW card is the statement for it"),
        ("ALTER TABLE card RENAME TO x", "found a view; ALTER MATERIALIZED VIEW card is the statement for it"),
        ("SHOW CREATE TABLE card", "found a view; SHOW CREATE MATERIALIZED VIEW card is the statement for it"),
        ("SHOW CREATE INDEX card", "found a view; SHOW CREATE MATERIALIZED VIEW card is the statement for it"),
        ("SHOW CREATE VIEW log", "found a table; SHOW CREATE TABLE log is the statement for it"),
        ("SHOW CREATE HANDLER default", "one of the system's own"),
    ],
)
def test_what_is_another_kind_is_named_with_its_statement(db: ebla.Database, statement: str, message: str):
    with refused(db, UsageError, message):
        db.sql(statement)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP VIEW card", "found VIEW; every view is materialized: DROP MATERIALIZED VIEW card"),
        ("DROP VIEW IF EXISTS `card`", "DROP MATERIALIZED VIEW `card`"),
        ("CREATE VIEW x AS SELECT 1", "CREATE MATERIALIZED VIEW x"),
        ("ALTER VIEW card RENAME TO x", "ALTER MATERIALIZED VIEW card"),
        ("SHOW CREATE x", "expected TABLE, MATERIALIZED VIEW, INDEX or HANDLER, found x"),
        ("SHOW SCHEMAS", "REPLICATION, PROGRESS, USERS, GRANTS or CREATE behind SHOW"),
    ],
)
def test_a_view_that_is_not_called_materialized_is_told(db: ebla.Database, statement: str, message: str):
    with refused(db, SqlError, message):
        db.sql(statement)


@pytest.mark.parametrize("kind", ["TABLE", "MATERIALIZED VIEW", "INDEX", "HANDLER"])
def test_what_is_not_there_is_an_error_with_the_names_that_are(db: ebla.Database, kind: str):
    with refused(db, UnknownNameError, "found none; "):
        db.sql(f"SHOW CREATE {kind} nope")


def test_a_table_is_not_called_no_view_at_all(db: ebla.Database):
    with refused(
        db, UnknownNameError, "view orders: expected a view of this name, found a table; views are Sums, card"
    ):
        db.sql("FLUSH orders")
