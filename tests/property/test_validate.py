"""Whatever the text: the validator answers with issues whose places are in the text, and never raises."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ebla.model.relation import Kind
from ebla.validate import RelationFacts, Warehouse, has_errors, ordered, render, script_issues
from support.spellings import naming, spelled
from support.view_queries import KEYS, TABLES, Sql, queries

KNOWN = Warehouse(
    relations={n: RelationFacts(name=n, kind=Kind.TABLE, columns=c, key=KEYS[n]) for n, c in TABLES.items()},
    handlers={"h": ((), ("a",))},
)
SCRIPTS = [
    "CREATE TABLE t (id BIGINT, s STRING COMMENT 'it''s', PRIMARY KEY (id)) WITH (tablets = 4);\n-- a remark\n"
    "INSERT INTO t SELECT id, s FROM a WHERE x > 1",
    "CREATE MATERIALIZED VIEW v (k, n) PRIMARY KEY (k) AS\nWITH w AS (SELECT id, x FROM a) "
    "SELECT w.id, b.s FROM w LEFT JOIN b ON w.x = b.id WHERE b.y IN (SELECT x FROM c) -- é😀\n; FLUSH v",
    "CREATE MATERIALIZED VIEW v AS SELECT a.s, count(*) AS n FROM a, b WHERE a.id = b.id GROUP BY a.s HAVING n > 1;\n"
    "CREATE HANDLER g CONSUMER c PROCESS v, INPUT a AS STREAM, INPUT b CHANGEFEED f AS BATCH WITH (epoch_period_s = 5);"
    "ALTER HANDLER g SET (epoch_period_s = 1); DROP HANDLER g",
    "ALTER TABLE a ADD COLUMN z INT; ALTER TABLE a RENAME TO e; EXPLAIN CREATE MATERIALIZED VIEW q AS SELECT z FROM e",
]
WORDS = ["SELECT", "FROM", "JOIN", "(", ")", ",", ";", "'", "`", "a", "b.x", "AS", "*", ".", "/*", "--", "VIEW", "0",
         "é", "\n", "sys$", "WITH", "x ->", ":p", "LATERAL VIEW", "rand()", "|>", "\x00", "\r\n"]  # fmt: skip

steady = settings(deadline=None, derandomize=True, max_examples=200)


def check(text: str) -> None:
    found = script_issues(text, KNOWN)
    assert list(found) == list(ordered(found))
    for issue in found:
        assert 0 <= issue.offset <= len(text)
        before = text[: issue.offset]
        assert (issue.line, issue.column) == (before.count("\n") + 1, issue.offset - before.rfind("\n"))
        assert issue.message
        assert issue.hint
    render(found, text)


@steady
@given(st.text(max_size=200))
def test_any_text_is_answered(text: str) -> None:
    check(text)


@steady
@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_any_words_are_answered(words: list[str]) -> None:
    check(" ".join(words))
    check("CREATE MATERIALIZED VIEW v AS SELECT " + " ".join(words))


@steady
@given(st.sampled_from(SCRIPTS), st.data())
def test_any_mutation_of_a_good_script_is_answered(script: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(script)))
        end = data.draw(st.integers(start, min(len(script), start + 12)))
        script = script[:start] + data.draw(st.sampled_from(["", *WORDS])) + script[end:]
    check(script)


@steady
@given(queries(), st.integers(0, 2**16))
def test_queries_of_the_grammar_of_views_have_no_errors(query: Sql, seed: int) -> None:
    names = naming(seed % 64)
    known = {
        table.lower(): RelationFacts(
            name=table, kind=Kind.TABLE, columns=names.schema[table.lower()], key=names.keys[table.lower()]
        )
        for table in names.tables.values()
    }
    text = f"CREATE MATERIALIZED VIEW v AS {spelled(query, names, seed).text}"
    found = script_issues(text, Warehouse(relations=known))
    assert not has_errors(found), render(found, text)
