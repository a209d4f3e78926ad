"""Every issue of the validator: its code, its place, its hint. `§` marks the place in a case's script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from ebla import errors
from ebla.sql.lex import StatementText
from ebla.sql.parse import parse
from ebla.sql.query import Query, TableRef
from ebla.sql.refs import find, rewrite, users_place
from ebla.sql.statements import CreateHandler
from ebla.validate import (
    Code,
    Issue,
    QueryAnalysis,
    QueryRefusal,
    Severity,
    Warehouse,
    refuse,
    render,
    require_handler,
    script_issues,
    strict,
)
from support.valid_queries import KNOWN, VALID


class Says:
    """Stands in for Spark: refuses, or names columns."""

    def __init__(self, answer: QueryAnalysis | QueryRefusal) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, Sequence[tuple[str, str]]]] = []

    def analyse(self, query: Query, inputs: Mapping[str, Sequence[tuple[str, str]]]) -> QueryAnalysis | QueryRefusal:
        self.asked.append(inputs)
        return self.answer


@dataclass(frozen=True, kw_only=True)
class Case:
    code: Code
    script: str
    hint: str
    found: str = ""
    severity: Severity | None = None
    spark: QueryAnalysis | QueryRefusal | None = None


V = "CREATE MATERIALIZED VIEW v AS "
CASES = [
    Case(code=Code.SYNTAX, script="SHOW TABLES;\n  DROP §orders", hint="sql.md", found="behind DROP, found orders"),
    Case(code=Code.SYNTAX, script="SELECT 1;\n  §'open", hint="sql.md", found="to close a string"),
    Case(code=Code.UNSUPPORTED_STATEMENT, script="§LOCK TABLE orders", hint="SELECT, WITH", found="LOCK"),
    Case(code=Code.DUPLICATE_OPTION, script="CREATE TABLE t (id INT) WITH (tablets = 4, §tablets = 8)", hint="once"),
    Case(code=Code.RESERVED_NAME, script="CREATE MATERIALIZED VIEW §`sys$v` AS SELECT id FROM orders", hint="another"),
    Case(code=Code.RESERVED_NAME, script="CREATE TABLE t (§_version INT)", hint="another name"),
    Case(code=Code.RESERVED_NAME, script="CREATE HANDLER §`sys$h` PROCESS rich INPUT orders AS STREAM, "
         "INPUT customers AS BATCH", hint="another name"),
    Case(code=Code.DUPLICATE_TABLE, script="CREATE TABLE §Orders (id INT)", hint="IF NOT EXISTS", found="a table of"),
    Case(code=Code.DUPLICATE_TABLE, script="ALTER TABLE bag RENAME TO §orders", hint="choose another name"),
    Case(code=Code.DUPLICATE_VIEW, script=f"{V}SELECT id FROM orders;\nCREATE MATERIALIZED VIEW\n  §V AS SELECT 1 AS x",
         hint="IF NOT EXISTS", found="a view of that name"),
    Case(code=Code.DUPLICATE_INDEX, script="CREATE INDEX i ON orders (total); CREATE INDEX §I ON orders (id)",
         found="an index of that name", hint="IF NOT EXISTS"),
    Case(code=Code.DUPLICATE_HANDLER, script="CREATE HANDLER §Nightly PROCESS rich INPUT orders AS STREAM, "
         "INPUT customers AS BATCH", hint="drop it first"),
    Case(code=Code.DUPLICATE_INPUT, script="CREATE HANDLER h PROCESS rich INPUT orders AS STREAM, "
         "INPUT customers AS BATCH, INPUT §Orders AS BATCH", hint="once"),
    Case(code=Code.REPEATED_VIEW, script="CREATE HANDLER h PROCESS rich, §rich INPUT orders AS STREAM, "
         "INPUT customers AS BATCH", hint="once"),
    Case(code=Code.DUPLICATE_COLUMN, script=f"{V}SELECT o.id,\n  c.§id FROM orders o JOIN customers c "
         "ON o.customer = c.id", hint="give it another alias, as in c.id AS c_id", found="found id twice"),
    Case(code=Code.DUPLICATE_COLUMN, script=f"{V}SELECT total AS c_id, id, customer AS §id FROM orders",
         hint="as in AS id_2", found="found id twice"),
    Case(code=Code.DUPLICATE_COLUMN, script=f"{V}SELECT o.id, §* FROM orders o", hint="in the place of *",
         found="found id twice"),
    Case(code=Code.DUPLICATE_COLUMN, script="CREATE TABLE t (id INT,\n  §ID INT)", hint="once"),
    Case(code=Code.UNKNOWN_TABLE, script=f"SELECT 1;\n{V}SELECT id\nFROM §ordrs", hint="did you mean orders?",
         found="found none"),
    Case(code=Code.UNKNOWN_TABLE, script="INSERT INTO §nope VALUES (1)", hint="bag, by_customer, customers"),
    Case(code=Code.UNKNOWN_TABLE, script="INSERT INTO bag SELECT id FROM §ordes", hint="did you mean orders?"),
    Case(code=Code.UNKNOWN_TABLE, script="CREATE HANDLER h PROCESS rich INPUT orders AS STREAM, "
         "INPUT customers AS STREAM, INPUT §custmers AS BATCH", hint="did you mean customers?"),
    Case(code=Code.UNKNOWN_TABLE, script=f"DROP TABLE bag; {V}SELECT x FROM §bag", hint="tables are"),
    Case(code=Code.UNKNOWN_VIEW, script="CREATE HANDLER h PROCESS rich,\n  §by_custmer INPUT orders AS STREAM, "
         "INPUT customers AS BATCH", hint="did you mean by_customer?"),
    Case(code=Code.UNKNOWN_VIEW, script="FLUSH §orders", hint="by_customer, rich", found="found a table"),
    Case(code=Code.UNKNOWN_INDEX, script="CREATE INDEX by_total ON orders (total); DROP INDEX §by_totl",
         hint="by_total?"),
    Case(code=Code.UNKNOWN_HANDLER, script="DROP HANDLER IF EXISTS x; DROP HANDLER §nigtly", hint="nightly?"),
    Case(code=Code.NOT_A_TABLE, script="DELETE FROM §rich", hint="change the tables", found="found a view"),
    Case(code=Code.IN_USE, script="DROP TABLE §customers", hint="CASCADE", found="found rich"),
    Case(code=Code.IN_USE, script=f"{V}SELECT id, total FROM orders;\nALTER TABLE orders DROP COLUMN day, §total",
         hint="drop them first", found="orders (total): expected that no view needs it, found v"),
    Case(code=Code.SYSTEM_INPUT, script=f"{V}SELECT * FROM §system.runs", hint="with a query", found="system.runs"),
    Case(code=Code.VERSIONED_INPUT, script=f"{V}SELECT id FROM §orders VERSION AS OF 3", hint="leave out AS OF"),
    Case(code=Code.DEFINED_LATER, script="CREATE MATERIALIZED VIEW a AS SELECT id FROM §b;\n"
         "CREATE MATERIALIZED VIEW b AS SELECT id FROM orders", hint="move that statement", found="line 2"),
    Case(code=Code.DEPENDENCY_CYCLE, script="CREATE MATERIALIZED VIEW a AS SELECT id FROM §b;\n"
         "CREATE MATERIALIZED VIEW b AS SELECT id FROM a", hint="a view of its own", found="a -> b -> a"),
    Case(code=Code.DEPENDENCY_CYCLE, script=f"{V}SELECT x FROM §v", hint="the tables", found="the view itself"),
    Case(code=Code.HANDLER_WITHOUT_VIEWS, script="CREATE HANDLER §h INPUT orders AS STREAM", hint="PROCESS"),
    Case(code=Code.HANDLER_WITHOUT_INPUTS, script="CREATE HANDLER §h PROCESS rich", hint="INPUT t AS STREAM"),
    Case(code=Code.VIEW_IN_TWO_HANDLERS, script="CREATE HANDLER h PROCESS §by_customer INPUT orders AS STREAM",
         hint="drop handler nightly", found="in handler nightly"),
    Case(code=Code.UNUSED_INPUT, script="CREATE HANDLER h PROCESS rich INPUT orders AS STREAM, "
         "INPUT customers AS BATCH, INPUT §lines AS STREAM", hint="leave it out"),
    Case(code=Code.MISSING_INPUT, script="CREATE HANDLER h PROCESS §rich INPUT orders AS STREAM",
         hint="INPUT customers AS STREAM"),
    Case(code=Code.UNKNOWN_ALIAS, script=f"{V}SELECT o.id,\n  §cc.name FROM orders o JOIN customers c "
         "ON o.customer = c.id", hint="did you mean c?"),
    Case(code=Code.UNKNOWN_COLUMN, script=f"{V}SELECT o.id FROM orders o\nWHERE o.§totl > 0",
         hint="did you mean total?", found="a column of orders o, found totl"),
    Case(code=Code.UNKNOWN_COLUMN, script=f"{V}SELECT id, total AS t FROM orders WHERE §t > 0", hint="repeat"),
    Case(code=Code.UNKNOWN_COLUMN, script="ALTER TABLE bag DROP COLUMN §y", hint="columns are x"),
    Case(code=Code.AMBIGUOUS_COLUMN, script=f"{V}SELECT §id FROM orders o JOIN customers c ON o.customer = c.id",
         hint="write o.id", found="orders o, customers c"),
    Case(code=Code.COLUMN_COUNT, script="CREATE MATERIALIZED VIEW v (§a, b) AS SELECT id FROM orders", hint="every",
         found="expected 1 column names, found 2"),
    Case(code=Code.NOT_DETERMINISTIC, script=f"{V}SELECT id,\n§rand() AS r FROM orders", hint="whenever",
         found="rand, a function of chance"),
    Case(code=Code.NOT_DETERMINISTIC, script=f"{V}SELECT id FROM orders WHERE day = §current_date", hint="whenever"),
    Case(code=Code.NOT_DETERMINISTIC, script=f"{V}SELECT id, §user FROM orders", hint="whenever"),
    Case(code=Code.NOT_DETERMINISTIC, script=f"{V}SELECT id FROM orders WHERE day = §DATE 'today'", hint="whenever",
         found="date'today', a function of the clock"),
    Case(code=Code.NOT_DETERMINISTIC, script=f"{V}§SELECT id FROM orders", hint="whenever",
         spark=QueryAnalysis(columns=(("id", "bigint"),), deterministic=False)),
    Case(code=Code.JOIN_TYPE, script=f"{V}SELECT o.id FROM orders o JOIN lines l ON §l.note = o.id AND l.oid = o.id",
         hint="CAST", found="l.note string and o.id bigint"),
    Case(code=Code.UNKNOWN_KEY_COLUMN, script="CREATE MATERIALIZED VIEW v PRIMARY KEY (id, §x)\nAS SELECT id "
         "FROM orders", hint="its columns are id"),
    Case(code=Code.UNKNOWN_KEY_COLUMN, script="CREATE TABLE t (id INT, PRIMARY KEY (§ids))", hint="name a column"),
    Case(code=Code.KEY_NOT_IMPLIED, script="CREATE MATERIALIZED VIEW v PRIMARY KEY (§customer) AS SELECT id, customer "
         "FROM orders", hint="declare PRIMARY KEY (id)"),
    Case(code=Code.SPARK, script=f"SHOW TABLES;\n{V}SELECT 1,\n  §total + vip AS x FROM orders, customers", hint="mend",
         found="no plus", spark=QueryRefusal(message="no plus", at=12)),
    Case(code=Code.UNSUPPORTED_TYPE, script=f"{V}SELECT id, NULL AS §n FROM orders", hint="CAST",
         spark=QueryRefusal(message="void", code=Code.UNSUPPORTED_TYPE, column=1)),
    Case(code=Code.UNSUPPORTED_TYPE, script="CREATE TABLE t (id §blob)", hint="use BINARY"),
    Case(code=Code.FULL_REFRESH, script=f"{V}SELECT id, ntile(4) OVER (ORDER BY id) AS place FROM §orders",
         hint="EXPLAIN", found="a change of orders needs a full refresh"),
    Case(code=Code.FULL_REFRESH, script="CREATE MATERIALIZED VIEW v WITH (refresh = 'incremental') AS "
         "SELECT id, count(*) OVER () AS n FROM §orders", hint="leave out refresh", severity=Severity.ERROR),
]  # fmt: skip


def place(marked: str) -> tuple[str, int, int, int]:
    """A script without its mark, and where the mark was: offset, line and column."""
    offset = marked.index("§")
    before = marked[:offset]
    return marked.replace("§", ""), offset, before.count("\n") + 1, offset - before.rfind("\n")


def issues_of(
    script: str, known: Warehouse = KNOWN, spark: QueryAnalysis | QueryRefusal | None = None
) -> tuple[Issue, ...]:
    return script_issues(script, known, None if spark is None else Says(spark))


@pytest.mark.parametrize("case", CASES, ids=[f"{c.code}-{i}" for i, c in enumerate(CASES)])
def test_an_issue_has_its_code_place_and_hint(case: Case):
    script, offset, line, column = place(case.script)
    found = [i for i in issues_of(script, spark=case.spark) if i.code is case.code]
    assert found, f"expected {case.code}, found {issues_of(script, spark=case.spark)}"
    first = found[0]
    assert (first.line, first.column, first.offset) == (line, column, offset), first
    assert case.hint in first.hint
    assert case.found in first.message
    assert first.severity is (case.severity or case.code.severity)


@pytest.mark.parametrize("case", CASES, ids=[f"{c.code}-{i}" for i, c in enumerate(CASES)])
def test_a_mistake_is_one_issue(case: Case):
    script, *_ = place(case.script)
    errors_found = [i for i in issues_of(script, spark=case.spark) if i.severity is not Severity.NOTE]
    assert {i.code for i in errors_found} <= {case.code}


def test_every_code_has_a_case():
    assert {c.code for c in CASES} == set(Code)


# ---- all at once ----------------------------------------------------------------------------------------


def codes(
    script: str, known: Warehouse = KNOWN, spark: QueryAnalysis | QueryRefusal | None = None
) -> list[tuple[str, int, int]]:
    found = issues_of(script, known, spark)
    return [(i.code.value, i.line, i.column) for i in found if i.severity is not Severity.NOTE]


def test_all_mistakes_of_a_phase_are_reported_in_order_of_place():
    script = f"{V}\nSELECT o.idd, z.name,\n  now() AS t, id\nFROM orders o JOIN customers c ON o.custmer = c.id"
    assert codes(script) == [
        ("unknown-column", 2, 10),
        ("unknown-alias", 2, 15),
        ("not-deterministic", 3, 3),
        ("ambiguous-column", 3, 15),
        ("unknown-column", 4, 37),
    ]


def test_every_bad_statement_of_a_script_is_one_issue():
    assert codes("DROP x;\nSELECT 1;\nCREATE x;\n  NONSENSE") == [
        ("syntax", 1, 6),
        ("syntax", 3, 8),
        ("unsupported-statement", 4, 3),
    ]


def test_statements_before_an_endless_string_are_checked_too():
    assert codes("DROP x;\nSHOW TABLES;\nSELECT 'oh; DROP y") == [("syntax", 1, 6), ("syntax", 3, 8)]
    assert codes("DROP x /* oh") == [("syntax", 1, 8)]


def test_a_statement_with_errors_is_left_out_of_later_phases_and_the_others_go_on():
    assert codes("DROP x; DROP TABLE nope") == [("syntax", 1, 6), ("unknown-table", 1, 20)]
    script = f"SELECT totl FROM orders; {V}SELECT id FROM orders; DROP TABLE nope; DROP"
    assert [code for code, _, _ in codes(script)] == ["unknown-column", "unknown-table", "syntax"]
    spark = Says(QueryRefusal(message="no"))
    found = script_issues(f"{V}SELECT nope FROM ordrs", KNOWN, spark)
    assert [i.code for i in found] == [Code.UNKNOWN_TABLE]
    found = script_issues(f"{V}SELECT nope FROM orders", KNOWN, spark)
    assert [i.code for i in found] == [Code.UNKNOWN_COLUMN]
    assert not spark.asked


# ---- the order of a script ------------------------------------------------------------------------------


def test_statements_see_what_earlier_ones_made():
    script = """
        CREATE TABLE t (id BIGINT, x STRING, PRIMARY KEY (id));
        CREATE MATERIALIZED VIEW a AS SELECT id, x AS label FROM t;
        CREATE MATERIALIZED VIEW b PRIMARY KEY (id) AS SELECT id, upper(label) AS label FROM a;
        CREATE HANDLER h PROCESS a, b INPUT t AS STREAM;
        INSERT INTO t VALUES (1, 'x');
        ALTER TABLE bag ADD COLUMN y INT; CREATE MATERIALIZED VIEW d AS SELECT x, y FROM bag;
        ALTER TABLE lines RENAME TO rows; CREATE MATERIALIZED VIEW c AS SELECT oid, n FROM rows;
        DROP MATERIALIZED VIEW c; DROP TABLE rows; CREATE TABLE lines (id INT);
        DROP TABLE orders CASCADE; DROP HANDLER h; FLUSH a, b
    """
    assert codes(script) == []
    assert codes(
        "CREATE MATERIALIZED VIEW a AS SELECT id FROM orders; CREATE MATERIALIZED VIEW b AS SELECT x FROM a"
    ) == [("unknown-column", 1, 91)]


def test_what_goes_is_gone():
    assert codes("DROP TABLE orders CASCADE;\nFLUSH by_customer")[0] == ("unknown-view", 2, 7)
    assert codes("ALTER TABLE bag RENAME TO sack;\nINSERT INTO bag VALUES (1)") == [("unknown-table", 2, 13)]


def test_a_view_over_a_refused_one_is_left_out():
    script = f"{V}SELECT id FROM orders;\nCREATE MATERIALIZED VIEW w AS SELECT id FROM v"
    spark = Says(QueryRefusal(message="no", at=7))
    assert [i.message for i in script_issues(script, KNOWN, spark)] == ["no"]
    assert len(spark.asked) == 1


def test_spark_sees_the_columns_that_it_found_before():
    script = f"{V}SELECT id, f(total) AS x FROM orders;\nCREATE MATERIALIZED VIEW w AS SELECT x FROM v"
    spark = Says(QueryAnalysis(columns=(("id", "bigint"), ("x", "double"))))
    script_issues(script, KNOWN, spark)
    assert spark.asked[1] == {"v": [("id", "bigint"), ("x", "double")]}


def test_explain_is_checked_but_makes_nothing():
    script = f"EXPLAIN {V}SELECT idd FROM orders"
    assert codes(script) == [("unknown-column", 1, 46)]
    assert codes("EXPLAIN CREATE MATERIALIZED VIEW rich AS SELECT id FROM orders; FLUSH rich") == []


def test_columns_follow_what_alter_does():
    script = """
        ALTER TABLE customers RENAME COLUMN id TO cid; ALTER TABLE customers DROP COLUMN vip;
        ALTER TABLE customers ALTER COLUMN country TYPE BIGINT;
        CREATE MATERIALIZED VIEW v PRIMARY KEY (cid) AS SELECT cid, country FROM customers;
        ALTER TABLE customers ADD COLUMN vip INT;
        CREATE MATERIALIZED VIEW w AS SELECT cid, vip FROM customers
    """
    assert codes(script) == []
    assert codes("ALTER TABLE customers RENAME COLUMN id TO name") == [("duplicate-column", 1, 43)]
    assert codes(f"ALTER TABLE bag RENAME COLUMN x TO y;\n{V}SELECT x FROM bag") == [("unknown-column", 2, 38)]


def test_what_if_not_exists_leaves_alone_is_not_checked():
    assert codes("CREATE MATERIALIZED VIEW IF NOT EXISTS rich AS SELECT nope FROM nowhere; FLUSH rich") == []


def test_a_view_that_goes_leaves_its_handler():
    script = """
        DROP MATERIALIZED VIEW by_customer; CREATE MATERIALIZED VIEW by_customer AS SELECT id FROM orders;
        CREATE HANDLER h PROCESS by_customer INPUT orders AS STREAM
    """
    assert codes(script) == []
    script = """ALTER MATERIALIZED VIEW by_customer RENAME TO x;
        CREATE HANDLER h PROCESS x INPUT orders AS STREAM"""
    assert codes(script) == [("view-in-two-handlers", 2, 34)]


def test_a_handler_is_refused_with_all_that_is_wrong_and_its_warnings_are_returned():
    made = parse("CREATE HANDLER nightly PROCESS rich, nope INPUT orders AS STREAM")
    assert isinstance(made, CreateHandler)
    with pytest.raises(errors.DuplicateNameError) as caught:
        require_handler(made, KNOWN)
    assert [i.code for i in caught.value.issues] == [Code.DUPLICATE_HANDLER, Code.MISSING_INPUT, Code.UNKNOWN_VIEW]
    made = parse("CREATE HANDLER h PROCESS rich INPUT orders AS STREAM")
    assert isinstance(made, CreateHandler)
    assert [i.code for i in require_handler(made, KNOWN)] == [Code.MISSING_INPUT]


# ---- never a false error --------------------------------------------------------------------------------


@pytest.mark.parametrize("query", VALID)
def test_a_query_that_spark_accepts_has_no_error(query: str):
    assert codes(V + query) == []


# ---- places ---------------------------------------------------------------------------------------------


def test_places_in_the_rewritten_query_lead_back_to_the_users_text():
    query = find("SELECT o.id, lines.n\nFROM orders o JOIN lines ON o.id = oid WHERE oid IN (TABLE bag)")

    def longer(ref: TableRef) -> str:
        return f"a_much_longer_name_of_{ref.name}"

    rewritten = rewrite(query, longer)
    for word in ("o.id", "lines.n", "JOIN", "ON", "oid", "WHERE", "IN"):
        assert users_place(query, longer, rewritten.index(word)) == query.text.index(word)
    assert users_place(query, longer, rewritten.index("name_of_lines")) == query.text.index("lines ON")
    assert users_place(query, longer, len(rewritten) + 5) == len(query.text)


# ---- text and JSON --------------------------------------------------------------------------------------


def test_issues_are_shown_with_the_line_and_a_caret():
    script = "SHOW TABLES;\n" + V + "\n\tSELECT idd FROM orders\r\n"
    assert render(issues_of(script), script) == (
        "error unknown-column at line 3, column 9: expected a column of orders, found idd\n"
        "  3 | \tSELECT idd FROM orders\n"
        "    | \t       ^\n"
        "  hint: did you mean id?"
    )


def test_an_issue_as_json():
    (issue,) = issues_of("FLUSH nope")
    assert json.loads(json.dumps(issue.as_json())) == {
        "code": "unknown-view",
        "severity": "error",
        "line": 1,
        "column": 7,
        "offset": 6,
        "message": "view nope: expected a view of this name, found none",
        "hint": "views are by_customer, rich",
    }


def test_strict_makes_warnings_errors_and_leaves_notes():
    script = "CREATE HANDLER h PROCESS rich INPUT orders AS STREAM; " + V + "SELECT count(*) OVER () AS n FROM orders"
    assert [i.severity for i in issues_of(script)] == [Severity.WARNING, Severity.NOTE]
    assert [i.severity for i in strict(issues_of(script))] == [Severity.ERROR, Severity.NOTE]


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (f"{V}SELECT id FROM nope", errors.UnknownNameError),
        ("CREATE MATERIALIZED VIEW rich AS SELECT id FROM orders", errors.DuplicateNameError),
        (f"{V}SELECT rand() AS r FROM orders", errors.UsageError),
        (f"{V}SELECT id FROM orders o JOIN customers c ON o.customer = c.id", errors.SqlError),
    ],
)
def test_the_first_issue_decides_the_class_of_the_error(script: str, kind: type[errors.UsageError]):
    found = issues_of(script)
    with pytest.raises(errors.UsageError) as caught:
        refuse(StatementText(text=script), found)
    assert type(caught.value) is kind
    assert caught.value.issues == found
    assert found[0].message in str(caught.value)
    assert "^" in str(caught.value)


def test_a_statement_in_the_middle_of_a_line_keeps_its_columns():
    script = f"SHOW TABLES; {V}SELECT idd FROM orders"
    text = StatementText(text=script[13:], offset=13, line=1, column=14)
    with pytest.raises(errors.UsageError) as caught:
        refuse(text, issues_of(script))
    shown = str(caught.value).splitlines()
    assert shown[1][shown[2].index("^") :].startswith("idd")


# ---- statements that are no views -----------------------------------------------------------------------

M = "MERGE INTO orders o USING customers c ON "


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("SELECT id, §totl FROM orders", Code.UNKNOWN_COLUMN),
        ("SELECT 1;\nSELECT o.id FROM orders o\nWHERE §x.id = 1", Code.UNKNOWN_ALIAS),
        ("EXPLAIN SELECT §totl FROM orders", Code.UNKNOWN_COLUMN),
        ("SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.§idd = o.id)", Code.UNKNOWN_COLUMN),
        ("SELECT * FROM §system.histroy", Code.UNKNOWN_TABLE),
        ("SELECT version, §nope FROM system.history", Code.UNKNOWN_COLUMN),
        ("INSERT INTO orders (id, §totl) VALUES (1, 2)", Code.UNKNOWN_COLUMN),
        ("INSERT INTO bag §VALUES (1, 2)", Code.COLUMN_COUNT),
        ("INSERT INTO orders (id, total) §SELECT id FROM customers", Code.COLUMN_COUNT),
        ("UPSERT INTO orders (id) SELECT §nope FROM customers", Code.UNKNOWN_COLUMN),
        ("DELETE FROM orders WHERE §nope = 1", Code.UNKNOWN_COLUMN),
        ("DELETE FROM orders WHERE id IN (SELECT id FROM §nowhere)", Code.UNKNOWN_TABLE),
        ("UPDATE orders SET §totl = 1", Code.UNKNOWN_COLUMN),
        ("UPDATE orders SET total = §totl + 1 WHERE id = 1", Code.UNKNOWN_COLUMN),
        ("UPDATE orders o SET total = 1 WHERE §x.id = 1", Code.UNKNOWN_ALIAS),
        ("MERGE INTO orders o USING §nowhere n ON o.id = n.id WHEN MATCHED THEN DELETE", Code.UNKNOWN_TABLE),
        (f"{M}o.id = c.§idd WHEN MATCHED THEN DELETE", Code.UNKNOWN_COLUMN),
        (f"{M}o.id = c.id\nWHEN MATCHED THEN UPDATE SET §totl = 1", Code.UNKNOWN_COLUMN),
        (f"{M}o.id = c.id\nWHEN MATCHED THEN UPDATE SET total = c.§nope", Code.UNKNOWN_COLUMN),
        (f"{M}o.id = c.id WHEN NOT MATCHED THEN INSERT (id, §nope) VALUES (c.id, 1)", Code.UNKNOWN_COLUMN),
        ("CREATE INDEX i ON orders (§totl)", Code.UNKNOWN_COLUMN),
        ("CREATE INDEX i ON orders (id, lower(§nme))", Code.UNKNOWN_COLUMN),
        ("CREATE INDEX i ON orders (id) WHERE §totl > 1", Code.UNKNOWN_COLUMN),
        ("CREATE INDEX i ON §nowhere (id)", Code.UNKNOWN_TABLE),
        ("CREATE INDEX i ON orders (id); SELECT * FROM §i", Code.UNKNOWN_TABLE),
        ("CREATE TABLE t (id INT); CREATE INDEX i ON t (id); DROP TABLE t; DROP INDEX §i", Code.UNKNOWN_INDEX),
        (f"{V}SELECT id FROM orders; SELECT §idd FROM v", Code.UNKNOWN_COLUMN),
        ("CREATE TABLE t (id INT, CHECK (id > 0 AND §nope > 0))", Code.UNKNOWN_COLUMN),
        ("CREATE TABLE t (id INT CHECK (§nope > 0), n INT)", Code.UNKNOWN_COLUMN),
        ("ALTER TABLE orders ADD CONSTRAINT c CHECK (total > §nope)", Code.UNKNOWN_COLUMN),
        ("ALTER TABLE §nowhere ADD CONSTRAINT c CHECK (total > 0)", Code.UNKNOWN_TABLE),
        ("ALTER TABLE §nowhere DROP CONSTRAINT c", Code.UNKNOWN_TABLE),
        ("ALTER TABLE orders ALTER COLUMN §nope SET DEFAULT 1", Code.UNKNOWN_COLUMN),
        ("ALTER TABLE orders ALTER COLUMN §nope DROP DEFAULT", Code.UNKNOWN_COLUMN),
        ("CREATE TABLE t AS SELECT id AS a, total FROM orders; SELECT a, §id FROM t", Code.UNKNOWN_COLUMN),
        ("CREATE TABLE t AS SELECT * FROM orders; ALTER TABLE t DROP COLUMN §nope", Code.UNKNOWN_COLUMN),
        ("CREATE TABLE t (id INT;\nSELECT a FROM t; SELECT §nope FROM orders", Code.UNKNOWN_COLUMN),
    ],
)
def test_every_statement_is_checked_and_places_are_those_of_the_text(script: str, code: Code):
    text, at = script.replace("§", ""), script.index("§")
    found = [
        i
        for i in script_issues(text, replace(KNOWN, system={"history": {"version": "bigint"}}))
        if i.code is not Code.SYNTAX
    ]
    line = text.count("\n", 0, at) + 1
    assert [(i.code, i.offset, i.line, i.column) for i in found] == [
        (code, at, line, at - (text.rfind("\n", 0, at) + 1) + 1)
    ]


@pytest.mark.parametrize(
    "verb", ["LOAD INTO §t FROM 'rows.csv'", "COMPACT §t", "VACUUM §t", "DESCRIBE §t", "CHECK TABLE §t"]
)
def test_upkeep_of_an_unknown_table_is_an_issue_at_its_name(verb: str):
    found = script_issues(verb.replace("§t", "nowhere"), KNOWN)
    assert [(i.code, i.offset) for i in found] == [(Code.UNKNOWN_TABLE, verb.index("§"))]


@pytest.mark.parametrize(
    "script",
    [
        "SELECT id, current_date FROM orders WHERE total > :least",
        "CREATE TABLE t (id INT, n INT CHECK (n > id), CONSTRAINT c CHECK (t.ID + n < 9)); "
        "ALTER TABLE t ADD CONSTRAINT d CHECK (n <> 3); ALTER TABLE t ALTER COLUMN N SET DEFAULT 4",
        "CREATE TABLE t AS SELECT id + 1, upper('a') AS u FROM orders; SELECT anything FROM t",
        "CREATE TABLE t AS SELECT id AS Id, max(total) s FROM orders GROUP BY id; INSERT INTO t (ID, s) VALUES (1, 2)",
        f"{V}SELECT id FROM orders; CREATE TABLE t AS SELECT * FROM v; SELECT id FROM t",
        "CREATE TABLE IF NOT EXISTS orders (a INT, CHECK (a > 0)); SELECT total FROM orders",
        "SELECT version FROM system.history h WHERE h.version > 1",
        "SELECT * FROM orders VERSION AS OF 3",
        "INSERT INTO orders (id, total) VALUES (1, DEFAULT)",
        "UPDATE orders SET total = DEFAULT WHERE id = 1",
        "UPDATE orders SET total = total + 1, id = id WHERE orders.id IN (SELECT c.id FROM customers c)",
        "DELETE FROM orders AS o WHERE o.id = 1",
        f"{M}o.id = c.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "MERGE INTO orders o USING (VALUES (1, 2)) AS n(id, total) ON o.id = n.id "
        "WHEN MATCHED THEN UPDATE SET total = n.total WHEN NOT MATCHED BY SOURCE THEN UPDATE SET total = o.total",
        "CREATE INDEX i ON orders (id, total DESC) WHERE total > 1; SHOW PROGRESS i; WAIT FOR i; DROP INDEX i",
        "DROP INDEX IF EXISTS nothing",
        "CREATE TABLE t (id INT); CREATE INDEX i ON t (id); DROP TABLE t; CREATE TABLE t (id INT); "
        "CREATE INDEX i ON t (id)",
    ],
)
def test_what_is_right_is_not_complained_about(script: str):
    assert script_issues(script, replace(KNOWN, system={"history": {"version": "bigint"}})) == ()
