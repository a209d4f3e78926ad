"""Which SELECTs are answered without Spark: those that can mean only one thing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from ebla.predicates import conditions as c
from ebla.predicates import select
from ebla.sql.refs import find
from support.relations import relation

T = relation(
    "t", "id", "id bigint", "s string", "n int", "d decimal(8,2)", "f float", "x double", "day date", "at timestamp",
    "b boolean", "list array<int>", "ntz timestamp_ntz",
)  # fmt: skip


def taken(text: str, **parameters: object) -> c.Request | None:
    found = select.recognize(find(text), parameters)
    try:
        return None if found is None else select.bound(found, T)
    except select.NotSimple:
        return None


def filters(text: str, **parameters: object) -> list[str]:
    found = taken(f"SELECT * FROM t WHERE {text} LIMIT 5", **parameters)
    assert found is not None, text
    return [str(f) for f in found.where]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s = 'open'", "s = 'open'"),
        ("s = 'it''s'", 's = "it\'s"'),
        ("s LIKE 'ab%'", "s LIKE 'ab%'"),
        ("n > 5", "n > 5"),
        ("n BETWEEN -1 AND 2", "n BETWEEN -1 AND 2"),
        ("n IN (3, 1, 3)", "n IN (1, 3)"),
        ("d <= 1.5", "d <= Decimal('1.50')"),
        ("x = 0.1", "x = 0.1"),
        ("f < 0.5", "f < 0.5"),
        ("day >= DATE '2024-01-31'", "day >= 19753"),
        ("day = '2024-01-31'", "day = 19753"),
        ("b = true", "b = True"),
        ("s IS NOT NULL", "s IS NOT NULL"),
        ("`s` IS NULL", "s IS NULL"),
    ],
)
def test_conditions_that_are_taken(text, expected):
    assert filters(text) == [expected]


def test_parameters_are_values():
    now = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert filters("at > :at AND d = :d", at=now, d=Decimal("1.5")) == [
        "at > 1704067200000000",
        "d = Decimal('1.50')",
    ]


@pytest.mark.parametrize(
    "condition",
    [
        "s = 5", "n = '5'", "n = 5.5", "n = 3000000000000", "f = 0.1", "x = 1e3", "d = 1.005", "day = '2024-1-1'",
        "at > '2024-01-01'", "at > TIMESTAMP '2024-01-01 00:00:00'", "ntz > DATE '2024-01-01'", "n <> 5", "n != 5",
        "NOT n = 5", "n = 5 OR n = 6", "s LIKE '%a'", "s LIKE 'a_b%'", "s LIKE 'ab'", "s = NULL", "n IN (1, NULL)",
        "n <=> 5", "5 = n", "n + 1 = 5", "lower(s) = 'a'", "s = 'a' 'b'", "s = \"a\"", r"s = 'a\n'", "b", "N = 5",
        "n = :missing", "list = 5", "n NOT IN (1)", "u.n = 5", "s = r'a'", "n = 5L", "s ILIKE 'a%'", "id = null",
    ],
)  # fmt: skip
def test_conditions_that_are_left_to_spark(condition):
    assert taken(f"SELECT * FROM t WHERE {condition} LIMIT 5") is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t LIMIT 5",
        "SELECT id, s AS name FROM t AS u WHERE u.n = 1 ORDER BY u.id DESC, s LIMIT 10000",
        "select t.id from t order by id nulls first limit :n",
        "SELECT /* a remark */ id FROM t -- and another\n ORDER BY n DESC NULLS LAST LIMIT 1",
        "SELECT * FROM t WHERE id = 5",
    ],
)
def test_queries_that_are_taken(text):
    assert taken(text, n=7) is not None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t", "SELECT * FROM t LIMIT 0", "SELECT * FROM t LIMIT 10001",
        "SELECT DISTINCT id FROM t LIMIT 5",
        "SELECT count(*) FROM t LIMIT 5", "SELECT ID FROM t LIMIT 5", "SELECT id x FROM t LIMIT 5",
        "SELECT id FROM t, t AS u LIMIT 5", "SELECT id FROM t GROUP BY id LIMIT 5", "SELECT id FROM t LIMIT 5 OFFSET 1",
        "SELECT id FROM t ORDER BY 1 LIMIT 5", "SELECT id AS s FROM t ORDER BY s LIMIT 5",
        "SELECT id, id FROM t LIMIT 5",
        "SELECT id FROM t ORDER BY id NULLS LAST LIMIT 5", "SELECT id FROM t ORDER BY list LIMIT 5",
        "SELECT id FROM t TABLESAMPLE (5 ROWS) LIMIT 5", "SELECT id FROM t VERSION AS OF 3 LIMIT 5", "TABLE t",
        "SELECT id FROM system.runs LIMIT 5", "SELECT id FROM t LIMIT ALL",
        "WITH u AS (SELECT 1) SELECT id FROM t LIMIT 1",
        "SELECT *, id FROM t LIMIT 5", "SELECT id FROM t UNION SELECT id FROM t LIMIT 5", "SELECT t.* FROM t LIMIT 5",
        "SELECT id FROM t WHERE id = 5 OR true", "SELECT * FROM t WHERE id IN (5, 6)", "SELECT all FROM t LIMIT 1",
    ],
)  # fmt: skip
def test_queries_that_are_left_to_spark(text):
    assert taken(text) is None


def test_the_order_of_a_query_without_one_does_not_matter():
    found = taken("SELECT id FROM t WHERE n = 1 LIMIT 5")
    assert found is not None
    assert found.any_order
    assert found.order == ()


# ---- conditions of partial indexes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "compared", "as_text"),
    [
        ("n > 5", ["n > 5"], []),
        ("n % 2 = 0", [], ["n % 2 = 0"]),
        ("n > 5 AND lower( s )='a' and b", ["n > 5"], ["lower ( s ) = 'a'", "b"]),
        ("n between 1 and 2 AND (n = 5 or s is null)", ["n BETWEEN 1 AND 2"], ["n = 5 OR s IS NULL"]),
        ("n = 5 OR s = 'a' AND b", [], ["n = 5 OR s = 'a' AND b"]),  # AND binds tighter
        ("((n) = (5))", [], ["( n ) = ( 5 )"]),
        ("(n = 1) = (b = true)", [], ["( n = 1 ) = ( b = true )"]),  # these parentheses are two
        ("CASE WHEN n = 1 AND b THEN true END AND b", [], ["CASE WHEN n = 1 AND b THEN true END", "b"]),
        ("n + 1 BETWEEN 2 AND 3 AND not b", [], ["n + 1 BETWEEN 2 AND 3", "NOT b"]),
        ('s = "a"', [], ['s = "a"']),  # a name or a string, as the session says
    ],
)
def test_a_condition_is_taken_apart(text: str, compared: list[str], as_text: list[str]):
    filters, promises = select.promises_of(text, T)
    assert [str(f) for f in filters] == compared
    assert promises == {f"={one}" for one in as_text}


def asked(where: str, *promises: str, relation: str = "t") -> c.Request:
    found = select.recognize(find(f"SELECT id FROM {relation} WHERE {where} LIMIT 5"), {})
    assert found is not None, where
    return select.bound(found, T, select.IndexVocabulary(promises=frozenset(f"={one}" for one in promises)))


def test_what_an_index_promises_is_taken_in_its_own_words():
    found = asked("n = 1 AND ( LOWER(s) = 'a' ) and n % 2=1", "lower ( s ) = 'a'", "n % 2 = 1")
    assert [str(f) for f in found.where] == ["n = 1"]
    assert found.said == {"=lower ( s ) = 'a'", "=n % 2 = 1"}


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("lower(s) = 'b'", "lower(s) = 'b' is no comparison of a column with a literal, and no index's condition"),
        ("lower(S) = 'a'", "lower(S) = 'a' is no comparison"),  # another name, perhaps
        ("lower(s) = 'a' OR n = 1", "is no comparison"),
        ("NOT lower(s) = 'a'", "is no comparison"),
        ("lower(s) = 'a' GROUP BY id", "is no comparison"),
    ],
)
def test_other_words_are_sparks(where: str, why: str):
    with pytest.raises(select.NotSimple) as caught:
        asked(where, "lower ( s ) = 'a'")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "text", ["lower(s) = 'a ( b'", "(n = 5 OR f(a, s.b[1])) AND NOT (b)", "n IN (1, 2)", "n % 2 = 1", "`a b` IS NULL"]
)
def test_normalized_text_is_shown_as_people_write_it(text: str):
    assert select.in_words(select.normalized(text)) == text


def test_a_word_that_may_be_the_relations_name_is_sparks():
    for where in ("s.n % 2 = 1", "s.n % 2 = 1 OR b", "id = 1 AND `S`.b"):
        assert select.recognize(find(f"SELECT id FROM t AS s WHERE {where} LIMIT 5"), {}) is None
    assert select.recognize(find("SELECT id FROM t AS s WHERE lower(s) = 'a' OR b LIMIT 5"), {}) is not None
