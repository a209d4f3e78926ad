"""Statements to values, scripts to statements, queries to the tables that they name."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from ebla.errors import DuplicateNameError, SqlError, UnknownNameError
from ebla.sql.cluster_statements import ExplainNode, ExplainTablet, ExplainTask
from ebla.sql.lex import split
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.sql.refs import find, rewrite
from ebla.sql.statements import (
    AddColumns,
    AlterColumnType,
    ColumnSpec,
    Compact,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    DropColumns,
    DropTable,
    Explain,
    ExplainIndex,
    Insert,
    Load,
    Merge,
    MergeClause,
    RenameColumn,
    RenameTable,
    SetColumnComment,
    SetTableComment,
    ShowTables,
    Truncate,
    Update,
    Vacuum,
)
from support.sql_queries import COMMON, SPARK, TPCH


def texts(script: str) -> list[str]:
    return [statement.text for statement in split(script)]


def names(text: str) -> list[str]:
    return [ref.name for ref in find(text).refs]


def viewed(text: str) -> str:
    """The text with every table read from a view of its name in capitals."""
    return rewrite(find(text), lambda ref: "_".join(ref.parts).upper())


# ---- split ----------------------------------------------------------------------------------------------


def test_half_a_character_is_refused_at_its_place():
    with pytest.raises(SqlError, match=r"lone surrogate.*line 2, column 9"):
        split("SELECT 1;\nSELECT '\ud800'")


def test_split_drops_empty_statements_and_the_comments_around_them():
    assert texts(" ; ;\n-- a;b\nSELECT 1; /* c;d */ SELECT 2 /* e */ ;; ") == ["SELECT 1", "SELECT 2"]
    assert texts("") == []
    assert texts("-- only a comment") == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT ';'",
        "SELECT 'it''s; so'",
        "SELECT 'back\\';slash'",
        "SELECT 'ends in a backslash\\\\'",
        'SELECT "double;\\"quoted"',
        'SELECT "a"";b"',
        "SELECT r'raw;\\'",
        "SELECT `a;``b;`",
        "SELECT 1 -- a;b\n + 1",
        "SELECT 1 -- over \\\n the; line\n + 1",
        "SELECT /* a; /* b; */ c; */ 1",
        "SELECT /*+ BROADCAST(a;b) */ 1",
    ],
)
def test_split_leaves_semicolons_in_strings_names_and_comments(statement):
    assert texts(f"{statement};SELECT 2") == [statement, "SELECT 2"]


def test_split_knows_where_a_statement_begins():
    script = "SELECT 1;\n\n  SELECT 2;SELECT 3"
    assert [(s.offset, s.line, s.column) for s in split(script)] == [(0, 1, 1), (13, 3, 3), (22, 3, 12)]
    assert all(script[s.offset :].startswith(s.text) for s in split(script))


@pytest.mark.parametrize(
    ("script", "place", "message"),
    [
        ("SELECT 1;\nSELECT 'abc", (2, 8), "expected ' to close a string"),
        ('SELECT "abc\\"', (1, 8), 'expected " to close a string'),
        ("SELECT `abc", (1, 8), "expected ` to close a quoted name"),
        ("SELECT /* a /* b */", (1, 8), "expected */ to close a comment"),
    ],
)
def test_split_says_what_was_left_open(script, place, message):
    with pytest.raises(SqlError, match=message.replace("*", r"\*")) as caught:
        split(script)
    assert (caught.value.line, caught.value.column) == place


def test_errors_give_the_place_in_the_whole_script():
    second = split("SELECT 1;\nDROP TABLE\n  IF t")[1]
    with pytest.raises(SqlError, match="expected the end of the statement, found t") as caught:
        parse(second)
    assert (caught.value.line, caught.value.column) == (3, 6)


# ---- definitions ----------------------------------------------------------------------------------------


def test_create_table():
    text = """CREATE TABLE IF NOT EXISTS Orders (
        id BIGINT NOT NULL COMMENT 'the key', -- a comment, with a comma
        `odd ``name` DECIMAL(12, 2),
        tags ARRAY<STRUCT<a: INT NOT NULL, b: MAP<STRING, INT>>> NOT NULL,
        span INTERVAL DAY TO SECOND,
        name STRING COLLATE UTF8_LCASE COMMENT "it\\'s",
        PRIMARY KEY (ID, name)
    ) COMMENT 'all ' 'orders' WITH (tablets = 16, Replication = 1, ratio = -0.5, name = 'x''y', live = true,
        `odd.key` = NULL, codec = zstd)"""
    assert parse(text) == CreateTable(
        name="Orders",
        columns=(
            ColumnSpec(name="id", type="BIGINT", nullable=False, comment="the key"),
            ColumnSpec(name="odd `name", type="DECIMAL(12, 2)"),
            ColumnSpec(name="tags", type="ARRAY<STRUCT<a: INT NOT NULL, b: MAP<STRING, INT>>>", nullable=False),
            ColumnSpec(name="span", type="INTERVAL DAY TO SECOND"),
            ColumnSpec(name="name", type="STRING COLLATE UTF8_LCASE", nullable=False, comment="it's"),
        ),
        primary_key=("id", "name"),
        if_not_exists=True,
        comment="all orders",
        options={
            "tablets": 16,
            "replication": 1,
            "ratio": -0.5,
            "name": "x'y",
            "live": True,
            "odd.key": None,
            "codec": "zstd",
        },
    )


def test_create_table_with_the_key_at_its_column():
    assert parse("create table t (a int primary key, primary string)") == CreateTable(
        name="t",
        columns=(ColumnSpec(name="a", type="int", nullable=False), ColumnSpec(name="primary", type="string")),
        primary_key=("a",),
    )


def test_create_table_without_a_key():
    created = parse("CREATE TABLE t (a INT)")
    assert isinstance(created, CreateTable)
    assert created.primary_key == ()


@pytest.mark.parametrize("head", ["", "(PRIMARY KEY (a)) ", "PRIMARY KEY (a) "])
def test_create_table_as_a_query(head):
    found = parse(
        f"CREATE OR REPLACE TABLE t {head}COMMENT 'c' WITH (tablets = 4) AS WITH x AS (SELECT 1) SELECT a FROM u"
    )
    assert isinstance(found, CreateTable)
    assert found.or_replace
    assert not found.if_not_exists
    assert (found.columns, found.primary_key) == ((), ("a",) if head else ())
    assert found.query is not None
    assert [ref.name for ref in found.query.refs] == ["u"]


@pytest.mark.parametrize("tail", ["(a INT) AS SELECT 1", "(a INT) SELECT 1", ""])
def test_a_table_has_columns_or_a_query(tail):
    with pytest.raises(SqlError, match=r"AS and a query"):
        parse(f"CREATE TABLE t {tail}")


def test_create_table_checks_names():
    with pytest.raises(DuplicateNameError, match="A is a column of table t twice"):
        parse("CREATE TABLE t (a INT, A STRING)")
    with pytest.raises(UnknownNameError, match=r"primary key of table t: expected one of its columns \(a\), found b"):
        parse("CREATE TABLE t (a INT, PRIMARY KEY (b))")
    with pytest.raises(DuplicateNameError, match="a is in the primary key of table t twice"):
        parse("CREATE TABLE t (a INT, PRIMARY KEY (a, a))")
    with pytest.raises(SqlError, match="expected one primary key, found 2"):
        parse("CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)")
    with pytest.raises(DuplicateNameError, match="option x is given twice"):
        parse("CREATE TABLE t (a INT) WITH (x = 1, x = 2)")


ALTERATIONS = [
    ("DROP TABLE t", DropTable(name="t")),
    ("drop table if exists `t u`", DropTable(name="t u", if_exists=True)),
    ("ALTER TABLE t RENAME TO u", RenameTable(table="t", new_name="u")),
    ("ALTER TABLE t RENAME COLUMN a TO `b c`", RenameColumn(table="t", column="a", new_name="b c")),
    (
        "ALTER TABLE t ADD COLUMNS (a INT COMMENT 'x', b STRING)",
        AddColumns(
            table="t", columns=(ColumnSpec(name="a", type="INT", comment="x"), ColumnSpec(name="b", type="STRING"))
        ),
    ),
    (
        "ALTER TABLE t ADD COLUMN a DECIMAL(3,1)",
        AddColumns(table="t", columns=(ColumnSpec(name="a", type="DECIMAL(3,1)"),)),
    ),
    ("ALTER TABLE t DROP COLUMN a", DropColumns(table="t", columns=("a",))),
    ("ALTER TABLE t DROP COLUMNS (a, b)", DropColumns(table="t", columns=("a", "b"))),
    ("ALTER TABLE t ALTER COLUMN c TYPE BIGINT", AlterColumnType(table="t", column="c", type="BIGINT")),
    (
        "ALTER TABLE t ALTER COLUMN c SET DATA TYPE DECIMAL(10, 2)",
        AlterColumnType(table="t", column="c", type="DECIMAL(10, 2)"),
    ),
    ("ALTER TABLE t ALTER COLUMN c COMMENT 'x'", SetColumnComment(table="t", column="c", comment="x")),
    ("COMMENT ON TABLE t IS 'x'", SetTableComment(table="t", comment="x")),
    ("COMMENT ON TABLE t IS NULL", SetTableComment(table="t", comment=None)),
    ("COMMENT ON COLUMN t.c IS 'x'", SetColumnComment(table="t", column="c", comment="x")),
    ("COMMENT ON COLUMN `t.u`.`c` IS NULL", SetColumnComment(table="t.u", column="c", comment=None)),
    ("SHOW TABLES", ShowTables()),
    ("DESCRIBE t", Describe(name="t")),
    ("DESC TABLE t", Describe(name="t")),
    ("DESCRIBE table", Describe(name="table")),
    ("DESCRIBE System.runs", Describe(name="runs", system=True)),
]


@pytest.mark.parametrize(("text", "statement"), ALTERATIONS)
def test_definitions(text, statement):
    assert parse(text) == statement
    assert parse(f"-- comment\n{text} ;") == statement


# ---- writes ---------------------------------------------------------------------------------------------


def test_insert():
    assert parse("INSERT INTO t VALUES (1, 'a'), (2, :b)") == Insert(
        table="t", columns=None, source=Query(text="VALUES (1, 'a'), (2, :b)"), width=2
    )
    inserted = parse("INSERT INTO TABLE t (a, `b c`) SELECT x, y FROM u -- all")
    assert isinstance(inserted, Insert)
    assert inserted.columns == ("a", "b c")
    assert inserted.source.text == "SELECT x, y FROM u"
    assert names(inserted.source.text) == ["u"]
    assert not inserted.upsert


@pytest.mark.parametrize(
    "source",
    ["(SELECT * FROM u)", "((SELECT 1) UNION SELECT 2)", "WITH x AS (SELECT 1) SELECT * FROM x", "FROM u", "TABLE u"],
)
def test_upsert_from_any_query(source):
    upserted = parse(f"UPSERT INTO t {source}")
    assert isinstance(upserted, Insert)
    assert (upserted.columns, upserted.source.text, upserted.upsert) == (None, source, True)


def test_insert_into_columns_with_the_names_of_keywords():
    inserted = parse("INSERT INTO t (values, from) VALUES (1, 2)")
    assert isinstance(inserted, Insert)
    assert inserted.columns == ("values", "from")


def test_update():
    text = """UPDATE orders AS o SET o.total = total * 1.1 /* a, b */, note = CASE WHEN total > 1 THEN 'x, WHERE'
        ELSE concat(note, ',') END, `where` = (SELECT max(a) FROM u WHERE u.id = o.id), f = :where
        WHERE id IN (SELECT id FROM v WHERE 1 = 1) AND note IS DISTINCT FROM 'x'"""
    assert parse(text) == Update(
        table="orders",
        alias="o",
        assignments=(
            ("total", "total * 1.1"),
            ("note", "CASE WHEN total > 1 THEN 'x, WHERE'\n        ELSE concat(note, ',') END"),
            ("where", "(SELECT max(a) FROM u WHERE u.id = o.id)"),
            ("f", ":where"),
        ),
        where="id IN (SELECT id FROM v WHERE 1 = 1) AND note IS DISTINCT FROM 'x'",
    )
    assert parse("UPDATE t SET a = 1") == Update(table="t", alias=None, assignments=(("a", "1"),), where=None)
    cast = parse("UPDATE t x SET a = b::map<string, int>, c = 2")
    assert isinstance(cast, Update)
    assert cast.assignments == (("a", "b::map<string, int>"), ("c", "2"))
    assert cast.alias == "x"


def test_delete():
    assert parse("DELETE FROM t") == Delete(table="t", alias=None, where=None)
    assert parse("DELETE FROM t x WHERE x.a > 1 OR b") == Delete(table="t", alias="x", where="x.a > 1 OR b")


def test_merge_with_every_clause():
    text = """MERGE INTO orders o USING (SELECT * FROM u WHERE a > 1) AS s (id, total) ON o.id = s.id
          AND CASE WHEN s.total > 1 THEN true ELSE false END
        WHEN MATCHED AND s.total IS NULL OR s.end THEN DELETE
        WHEN MATCHED AND o.total = CASE WHEN 1 = 1 THEN 2 END THEN UPDATE SET *
        WHEN MATCHED THEN UPDATE SET o.total = s.total, note = CASE WHEN true THEN 'a' END
        WHEN NOT MATCHED AND s.total > 0 THEN INSERT (id, total) VALUES (s.id, coalesce(s.total, 0))
        WHEN NOT MATCHED BY TARGET THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND o.total < 0 THEN DELETE
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET total = 0"""
    assert parse(text) == Merge(
        table="orders",
        alias="o",
        source="(SELECT * FROM u WHERE a > 1) AS s (id, total)",
        source_alias="s",
        on="o.id = s.id\n          AND CASE WHEN s.total > 1 THEN true ELSE false END",
        clauses=(
            MergeClause(matched="matched", action="delete", condition="s.total IS NULL OR s.end"),
            MergeClause(
                matched="matched",
                action="update",
                condition="o.total = CASE WHEN 1 = 1 THEN 2 END",
                star=True,
            ),
            MergeClause(
                matched="matched",
                action="update",
                assignments=(("total", "s.total"), ("note", "CASE WHEN true THEN 'a' END")),
            ),
            MergeClause(
                matched="not_matched",
                action="insert",
                condition="s.total > 0",
                columns=("id", "total"),
                values=("s.id", "coalesce(s.total, 0)"),
            ),
            MergeClause(matched="not_matched", action="insert", star=True),
            MergeClause(matched="not_matched_by_source", action="delete", condition="o.total < 0"),
            MergeClause(matched="not_matched_by_source", action="update", assignments=(("total", "0"),)),
        ),
    )


@pytest.mark.parametrize(
    ("source", "text", "alias"),
    [
        ("u", "u", "u"),
        ("u AS s", "u AS s", "s"),
        ("u VERSION AS OF 3 s", "u VERSION AS OF 3 s", "s"),
        ("system.runs", "system.runs", "runs"),
        ("(SELECT 1 AS id)", "(SELECT 1 AS id)", None),
        ("(u) s", "(u) s", "s"),
        ("VALUES (1, 2), (3, 4) AS s(id, total)", "VALUES (1, 2), (3, 4) AS s(id, total)", "s"),
        ("range(10) s", "range(10) s", "s"),
    ],
)
def test_merge_sources(source, text, alias):
    merged = parse(f"MERGE INTO t USING {source} ON true WHEN MATCHED THEN DELETE")
    assert isinstance(merged, Merge)
    assert (merged.source, merged.source_alias) == (text, alias)


MAINTENANCE = [
    ("TRUNCATE TABLE t", Truncate(table="t")),
    ("TRUNCATE t", Truncate(table="t")),
    ("COMPACT", Compact()),
    ("COMPACT TABLE t", Compact(table="t")),
    ("COMPACT t", Compact(table="t")),
    ("VACUUM", Vacuum()),
    ("VACUUM t", Vacuum(table="t")),
    ("VACUUM retain", Vacuum(table="retain")),
    ("VACUUM RETAIN 2 HOURS", Vacuum(retain_seconds=7200.0)),
    ("VACUUM t RETAIN 1.5 DAYS", Vacuum(table="t", retain_seconds=129600.0)),
    ("VACUUM t RETAIN 10 MINUTES", Vacuum(table="t", retain_seconds=600.0)),
    ("VACUUM t RETAIN 1 second", Vacuum(table="t", retain_seconds=1.0)),
    ("LOAD INTO t FROM 'dir/*.parquet'", Load(table="t", path="dir/*.parquet")),
    ("LOAD ASYNC INTO t FROM 'a.csv'", Load(table="t", path="a.csv", asynchronous=True)),
    (
        "LOAD INTO t FROM 'a.csv' FORMAT CSV WITH (header = true, delimiter = ';')",
        Load(table="t", path="a.csv", format="csv", options={"header": True, "delimiter": ";"}),
    ),
]


@pytest.mark.parametrize(("text", "statement"), MAINTENANCE)
def test_maintenance_and_loading(text, statement):
    assert parse(text) == statement


def test_explain():
    explained = parse("EXPLAIN FORMATTED SELECT * FROM t")
    assert explained == Explain(query=find("SELECT * FROM t"), mode="formatted")
    assert parse("EXPLAIN INDEX by_day") == ExplainIndex(name="by_day")
    assert parse("EXPLAIN TABLET 3 OF orders") == ExplainTablet(tablet=3, table="orders")
    assert parse("EXPLAIN NODE 'node1'") == parse("EXPLAIN NODE node1") == ExplainNode(node="node1")
    assert parse("EXPLAIN TASK 'a-7'") == ExplainTask(task="a-7")
    assert parse("EXPLAIN WITH x AS (SELECT 1) TABLE x") == Explain(query=find("WITH x AS (SELECT 1) TABLE x"))


# ---- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a statement, found an empty text"),
        ("SELECT 1; SELECT 2", "expected one statement, found 2"),
        ("CALL x", "expected a statement, found CALL; supported are SELECT, .* and VACUUM"),
        ("`SHOW` TABLES", "expected a statement, found `SHOW`"),
        ("CREATE VIEW v AS SELECT 1", "expected TABLE, MATERIALIZED VIEW, INDEX or HANDLER behind CREATE, found VIEW"),
        ("CREATE TABLE system.t (a INT)", "found system.t; system tables can only be read"),
        ("CREATE TABLE a.b (a INT)", "found a.b; tables have one-part names"),
        ("CREATE TABLE t (a)", r"expected a type, found \)"),
        ("CREATE TABLE t (a NOT NULL)", "expected a type, found NOT"),
        ("CREATE TABLE t (a INT REFERENCES u)", "expected NOT NULL, PRIMARY KEY, DEFAULT, CHECK .* found REFERENCES"),
        ("CREATE TABLE t (a ARRAY<INT)", "expected > to close this <"),
        ("CREATE TABLE t (a INT", r"expected \), found the end of the statement"),
        ("CREATE TABLE t (a INT) WITH (x = )", r"expected a number, a string, TRUE, FALSE or NULL, found \)"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (a)", "found PARTITIONED"),
        ("ALTER TABLE t ADD COLUMN a INT PRIMARY KEY", "the key of a table is fixed"),
        ("ALTER TABLE t SET TBLPROPERTIES (a = 1)", "expected ADD COLUMN, .* found SET"),
        ("INSERT OVERWRITE t SELECT 1", "DELETE or TRUNCATE first"),
        ("INSERT INTO t (a, b) VALUES (1, 2), (3)", "expected 2 values, found 1"),
        ("INSERT INTO t VALUES (1, 2), (3, 4, 5)", "expected 2 values, found 3"),
        ("INSERT INTO t (a) SET 1", "expected VALUES, SELECT or WITH, found SET"),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "write INSERT INTO t WITH … SELECT …"),
        ("FROM t INSERT INTO u SELECT *", "write INSERT INTO first"),
        ("UPDATE t SET a = 1 FROM u", "use MERGE"),
        ("UPDATE t SET s.f = 1", "expected a column of t, found s.f; .* assign the whole struct"),
        ("UPDATE t SET a = , b = 1", "expected an expression, found ,"),
        ("UPDATE t SET a = 1)", r"found \)"),
        ("DELETE FROM t USING u", "expected WHERE or the end of the statement, found USING"),
        ("DELETE t", "expected FROM, found t"),
        ("DELETE FROM t WHERE a IN (SELECT 1 FROM x.y)", "or system.<name>, found x.y"),
        ("MERGE INTO t USING u ON true", "expected WHEN MATCHED or WHEN NOT MATCHED, found the end"),
        ("MERGE INTO t USING u ON true WHEN MATCHED THEN INSERT *", "expected UPDATE or DELETE, found INSERT"),
        ("MERGE INTO t USING u ON true WHEN NOT MATCHED THEN DELETE", "expected INSERT, found DELETE"),
        (
            "MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET *",
            "only the last may go without AND",
        ),
        (
            "MERGE INTO t USING u ON true WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *",
            "there is no source row to take values from",
        ),
        (
            "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)",
            "expected 1 values, one for each column, found 2",
        ),
        ("LOAD INTO t FROM path", "expected the path of the files as a string or :parameter, found path"),
        ("LOAD INTO t FROM 'p' FORMAT orc", "expected parquet, csv or json, found orc"),
        ("VACUUM t KEEP 1 DAY", "expected RETAIN or the end of the statement, found KEEP"),
        ("VACUUM t RETAIN 1 YEAR", "expected SECONDS, .* found YEAR"),
        ("EXPLAIN INDEX i j", "expected the end of the statement, found j"),
        ("EXPLAIN MATERIALIZED VIEW v w", "expected the end of the statement, found w"),
        ("EXPLAIN DROP TABLE t", "expected a query, MATERIALIZED VIEW, INDEX, .* after EXPLAIN, found DROP"),
        ("EXPLAIN TABLET OF t", "expected the number of a tablet, found OF; SHOW TABLETS lists them"),
        ("EXPLAIN TABLET 3 t", "expected OF, found t"),
        ("EXPLAIN TASK a", "expected the id of a task, found a"),
        ("SHOW DATABASES", "expected TABLES, VIEWS, .* behind SHOW, found DATABASES"),
        ("SELECT * FROM a.b.c", "expected the name of a table, or system.<name>, found a.b.c"),
        ("SELECT * FROM parquet.`/x`", "found parquet./x"),
        ("SELECT * FROM IDENTIFIER(:t)", r"found IDENTIFIER\(…\); write the name itself"),
        ("SELECT * FROM", "expected a table, a subquery or a table function, found the end"),
        ("SELECT * FROM (SELECT 1", r"expected \) to close this \("),
        ("SELECT 1)", r"expected no \) here"),
        ("SELECT * FROM t VERSION AS OF 'x'", "expected the number of a version, or a :parameter, found 'x'"),
        ("SELECT * FROM t TIMESTAMP AS OF (SELECT max(a) FROM u)", "expected a time without a query"),
        ("SELECT " + "(" * 2000 + ")" * 2000, "expected fewer nested parentheses"),
        (f"MERGE INTO t USING {'(' * 2000}u{')' * 2000} ON true", "expected fewer nested parentheses"),
    ],
)
def test_errors_say_what_was_expected_and_found(text, message):
    with pytest.raises(SqlError, match=message) as caught:
        parse(text)
    assert caught.value.line is not None


def test_an_error_in_a_subquery_of_a_write_has_its_place():
    with pytest.raises(SqlError) as caught:
        parse("DELETE FROM t\nWHERE a IN (SELECT 1\n  FROM x.y)")
    assert (caught.value.line, caught.value.column) == (3, 8)


# ---- references -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "expected"), [*TPCH.values(), *COMMON, *SPARK])
def test_references(text, expected):
    query = parse(text)
    assert isinstance(query, Query)
    assert query.text == split(text)[0].text
    assert [ref.name for ref in query.refs] == expected


def names_by_sqlglot(node: exp.Expr, scope: frozenset[str] = frozenset()) -> list[str]:
    """The tables in sqlglot's tree which no CTE in scope explains."""
    found: list[str] = []
    with_ = node.args.get("with_")
    if with_ is not None:
        for cte in with_.expressions:
            found += names_by_sqlglot(cte.this, scope)
            scope |= {cte.alias.lower()}
    for key, value in node.args.items():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, exp.Expr) and key != "with_":
                is_table = isinstance(child, exp.Table) and isinstance(child.this, exp.Identifier)
                found += [child.name] if is_table and child.name.lower() not in scope else []
                found += names_by_sqlglot(child, scope)
    return sorted(found)


@pytest.mark.parametrize("text", [text for text, _expected in [*TPCH.values(), *COMMON]])
def test_references_agree_with_sqlglot(text):
    assert sorted(names(text)) == names_by_sqlglot(sqlglot.parse_one(text, read="spark"))


def test_a_reference_knows_its_span_alias_and_time():
    text = (
        "SELECT * FROM a VERSION AS OF 3 AS x JOIN b FOR SYSTEM_TIME AS OF '2026-01-01' || ' 00:00' y ON true "
        "JOIN system.runs ON true JOIN `c d` VERSION AS OF :v TABLESAMPLE (1 ROWS), e timestamp as of :t, f version"
    )
    refs = find(text).refs
    assert [text[ref.start : ref.end] for ref in refs] == [
        "a VERSION AS OF 3",
        "b FOR SYSTEM_TIME AS OF '2026-01-01' || ' 00:00'",
        "system.runs",
        "`c d` VERSION AS OF :v",
        "e timestamp as of :t",
        "f",
    ]
    assert [ref.parts for ref in refs] == [("a",), ("b",), ("system", "runs"), ("c d",), ("e",), ("f",)]
    assert [ref.alias for ref in refs] == ["x", "y", None, None, None, "version"]
    assert [ref.version for ref in refs] == [3, None, None, ":v", None, None]
    assert [ref.timestamp for ref in refs] == [None, "'2026-01-01' || ' 00:00'", None, None, ":t", None]


@pytest.mark.parametrize(
    ("clause", "time"),
    [
        ("current_timestamp() - INTERVAL 1 DAY", "current_timestamp() - INTERVAL 1 DAY"),
        ("now() - INTERVAL '1:30' HOUR TO MINUTE", "now() - INTERVAL '1:30' HOUR TO MINUTE"),
        ("TIMESTAMP '2026-01-01 00:00:00'", "TIMESTAMP '2026-01-01 00:00:00'"),
        ("CAST(:at AS TIMESTAMP)", "CAST(:at AS TIMESTAMP)"),
        ("'2026-01-01'::timestamp", "'2026-01-01'::timestamp"),
        ("array(now())[0]", "array(now())[0]"),
        ("CASE WHEN true THEN now() END", "CASE WHEN true THEN now() END"),
    ],
)
def test_the_time_of_a_reference_ends_before_its_alias(clause, time):
    for tail, alias in [("", None), (" o", "o"), (" AS o (a, b)", "o"), (" WHERE a", None), (", u", None)]:
        ref = find(f"SELECT * FROM t TIMESTAMP AS OF {clause}{tail}").refs[0]
        assert (ref.timestamp, ref.alias) == (time, alias)


# ---- rewrite --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT t.a FROM t", "SELECT t.a FROM `T` AS `t`"),
        ("SELECT a FROM t AS x, u y", "SELECT a FROM `T` AS x, `U` y"),
        ("SELECT * FROM `a``b`", "SELECT * FROM `A``B` AS `a``b`"),
        ("SELECT * FROM t VERSION AS OF 3 WHERE t.a", "SELECT * FROM `T` AS `t` WHERE t.a"),
        ("SELECT * FROM t VERSION AS OF 3 AS x", "SELECT * FROM `T` AS x"),
        (
            "SELECT * FROM t TABLESAMPLE (1 ROWS) JOIN u USING (a)",
            "SELECT * FROM `T` TABLESAMPLE (1 ROWS) AS `t` JOIN `U` AS `u` USING (a)",
        ),
        ("SELECT * FROM t TABLESAMPLE (1 ROWS) x", "SELECT * FROM `T` TABLESAMPLE (1 ROWS) x"),
        ("SELECT * FROM system.runs", "SELECT * FROM `SYSTEM_RUNS` AS `runs`"),
        ("TABLE t ORDER BY t.a", "SELECT * FROM `T` AS `t` ORDER BY t.a"),
        ("SELECT * FROM f(TABLE(t))", "SELECT * FROM f(TABLE(`T`))"),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", "WITH t AS (SELECT * FROM `T` AS `t`) SELECT * FROM t"),
        ("SELECT 'FROM t' -- t\n FROM t", "SELECT 'FROM t' -- t\n FROM `T` AS `t`"),
        ("SELECT 1", "SELECT 1"),
    ],
)
def test_rewrite(text, expected):
    assert viewed(text) == expected


def test_rewrite_leaves_what_has_no_replacement():
    query = find("SELECT * FROM t VERSION AS OF 3, u")
    text = rewrite(query, lambda ref: "U" if ref.name == "u" else None)
    assert text == "SELECT * FROM t VERSION AS OF 3, `U` AS `u`"


@pytest.mark.parametrize("query", ["FROM t SELECT a", "TABLE t", "FROM t |> SELECT a", "SELECT a FROM t", "(TABLE t)"])
def test_the_query_of_a_view_is_the_same_query(query):
    made = parse(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert isinstance(made, CreateView)
    assert made.query == find(query)
    assert [ref.name for ref in made.query.refs] == ["t"]
    assert made.query.source is not None
    assert made.query.source.text[made.query_at :] == query
