"""Queries of the small language that DuckDB may compute in Spark's place, with rows that are hard for it."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from support.edges import column, edges

D = decimal.Decimal
TABLES: dict[str, dict[str, str]] = {
    "t": {
        "k": "bigint",
        "i": "int",
        "s": "smallint",
        "y": "tinyint",
        "b": "bigint",
        "d": "decimal(10,2)",
        "e": "decimal(18,4)",
        "w": "decimal(38,10)",
        "n": "string",
        "f": "boolean",
        "g": "date",
        "ts": "timestamp",
        "z": "timestamp_ntz",
        "x": "double",
    },
    "u": {"k": "bigint", "i": "int", "b": "bigint", "d": "decimal(12,1)", "n": "string", "g": "date", "f": "boolean"},
}
SMALL = ("i", "s", "y", "d", "e")
"""Columns of small numbers, for arithmetic; the others hold what is largest and smallest."""

STORED: dict[str, dict[str, str]] = {
    table: {name.upper() if at % 2 else name: kind for at, (name, kind) in enumerate(columns.items())}
    for table, columns in TABLES.items()
}
"""The columns as the tables have them: queries spell all of them in small letters."""

_VALUES: dict[str, list[object]] = {
    "k": [1, 2, 3, 4],
    "i": [None, 0, 1, -7, 100, 2000],
    "s": [None, 0, 3, -3, 150],
    "y": [None, 0, 1, -2, 9],
    "b": [None, 0, 2**63 - 1, -(2**63), 2**31, -(2**31) - 1],
    "d": [None, D("0.00"), D("1.10"), D("-2.55"), D("99.99"), D("12345678.91")],
    "e": [None, D("0.0001"), D("-3.1400"), D("77777.7777")],
    "w": [None, D("0"), D("9999999999999999999999999999.9999999999"), D("-1.0000000001")],
    "n": edges("string"),
    "f": [None, True, False],
    "g": [*edges("date"), -141_428, 19_782],
    "ts": edges("timestamp"),
    "z": edges("timestamp_ntz"),
    "x": edges("double"),
}


@st.composite
def rows(draw: st.DrawFn, table: str) -> list[dict[str, Any]]:
    """Dates in days, times in microseconds since 1970: beyond Python's years, too."""

    def value(name: str, kind: str) -> object:
        found = draw(st.sampled_from(_VALUES[name]))
        if isinstance(found, D):
            return found.quantize(D(1).scaleb(-int(kind[:-1].split(",")[1])), context=decimal.Context(prec=40))
        return found

    return [{name: value(name, kind) for name, kind in TABLES[table].items()} for _ in range(draw(st.integers(0, 8)))]


def arrow(table: str, found: list[dict[str, Any]]) -> pa.Table:
    """Rows under the names that the table stores."""
    return pa.table(
        {
            stored: column(kind, [row[name] for row in found])
            for (stored, kind), name in zip(STORED[table].items(), TABLES[table], strict=True)
        }
    )


Sources = list[tuple[str, str]]
"""Alias and table of everything in FROM."""


def _column(draw: st.DrawFn, sources: Sources, kinds: tuple[str, ...]) -> tuple[str, str] | None:
    found = [
        (f"{alias}.{name}", kind)
        for alias, table in sources
        for name, kind in TABLES[table].items()
        if kind.split("(")[0] in kinds
    ]
    return draw(st.sampled_from(found)) if found else None


def _number(draw: st.DrawFn, sources: Sources, depth: int) -> str:
    how = draw(
        st.sampled_from(["column", "column", "literal", "arithmetic", "part"] if depth else ["column", "literal"])
    )
    if how == "literal":
        return draw(st.sampled_from(["0", "1", "7", "-3", "0.5", "1.25", "12.00", "-0.1", ".5", "100"]))
    if how == "part":
        return f"{draw(st.sampled_from(['year', 'month', 'day']))}({_date(draw, sources)})"
    if how == "arithmetic":
        left, right = _number(draw, sources, depth - 1), _number(draw, sources, depth - 1)
        return f"({left} {draw(st.sampled_from('+-*'))} {right})"
    alias, table = draw(st.sampled_from(sources))
    return f"{alias}.{draw(st.sampled_from([n for n in SMALL if n in TABLES[table]]))}"


def _date(draw: st.DrawFn, sources: Sources) -> str:
    found = _column(draw, sources, ("date",))
    assert found is not None
    return draw(st.sampled_from([found[0], "DATE '2024-02-29'"]))


def _text(draw: st.DrawFn, sources: Sources, depth: int) -> str:
    how = draw(st.sampled_from(["column", "literal", "joined", "choice"] if depth else ["column", "literal"]))
    if how == "literal":
        return draw(st.sampled_from(["''", "'a'", "'ä'", "'Zz '", "'10'"]))
    if how == "joined":
        return f"({_text(draw, sources, 0)} || {_text(draw, sources, 0)})"
    if how == "choice":
        one, other = _text(draw, sources, 0), _text(draw, sources, 0)
        if draw(st.booleans()):
            return f"coalesce({one}, {other})"
        return f"CASE WHEN {condition(draw, sources, 0)} THEN {one} ELSE {other} END"
    found = _column(draw, sources, ("string",))
    assert found is not None
    return found[0]


def condition(draw: st.DrawFn, sources: Sources, depth: int) -> str:
    kinds = ["numbers", "same", "dates", "texts", "null", "flag", "in", "between"]
    how = draw(st.sampled_from([*kinds, "and", "or", "not"] if depth else kinds))
    sign = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
    match how:
        case "numbers":
            return f"{_number(draw, sources, depth)} {sign} {_number(draw, sources, depth)}"
        case "same":
            kind = draw(st.sampled_from(["bigint", "decimal", "timestamp", "timestamp_ntz", "boolean"]))
            one = _column(draw, sources, (kind,)) or _column(draw, sources, ("bigint",))
            assert one is not None
            other = _column(draw, sources, (one[1].split("(")[0],))
            assert other is not None
            return f"{one[0]} {sign} {other[0]}"
        case "dates":
            return f"{_date(draw, sources)} {sign} {_date(draw, sources)}"
        case "texts":
            return f"{_text(draw, sources, depth)} {sign} {_text(draw, sources, depth)}"
        case "null":
            found = _column(draw, sources, ("bigint", "string", "decimal", "double", "date"))
            assert found is not None
            return f"{found[0]} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case "flag":
            found = _column(draw, sources, ("boolean",))
            assert found is not None
            return found[0]
        case "in":
            negated = draw(st.sampled_from(["", "NOT "]))
            if draw(st.booleans()):
                return f"{_text(draw, sources, 0)} {negated}IN ('a', 'ä', '')"
            return f"{sources[0][0]}.i {negated}IN (0, 1, -7)"
        case "between":
            return f"{sources[0][0]}.d BETWEEN {_number(draw, sources, 0)} AND {_number(draw, sources, 0)}"
        case "not":
            return f"NOT ({condition(draw, sources, depth - 1)})"
        case _:
            left, right = condition(draw, sources, depth - 1), condition(draw, sources, depth - 1)
            return f"({left} {how.upper()} {right})"


def _expression(draw: st.DrawFn, sources: Sources) -> str:
    match draw(st.sampled_from(["column", "number", "number", "text", "condition"])):
        case "column":
            alias, table = draw(st.sampled_from(sources))
            return f"{alias}.{draw(st.sampled_from(list(TABLES[table])))}"
        case "number":
            return _number(draw, sources, 2)
        case "text":
            return _text(draw, sources, 1)
        case _:
            return condition(draw, sources, 1)


def _aggregate(draw: st.DrawFn, sources: Sources) -> str:
    call = draw(st.sampled_from(["count(*)", "count", "sum", "min", "max"]))
    filtered = f" FILTER (WHERE {condition(draw, sources, 0)})" if draw(st.integers(0, 3)) == 0 else ""
    if call == "count(*)":
        return call + filtered
    distinct = "DISTINCT " if draw(st.integers(0, 3)) == 0 else ""
    if call == "sum":
        return f"sum({distinct}{_number(draw, sources, 1)}){filtered}"
    kinds = ("bigint", "string", "decimal", "date", "timestamp", "boolean", "int")
    found = _column(draw, sources, kinds)
    assert found is not None
    return f"{call}({distinct}{found[0]}){filtered}"


@st.composite
def plain_queries(draw: st.DrawFn) -> str:
    sources: Sources = [("a", "t")]
    text = "FROM t a"
    if draw(st.booleans()):
        sources.append(("c", "u"))
        kind = draw(st.sampled_from(["", "LEFT ", "RIGHT ", "FULL ", "CROSS "]))
        on = "" if kind == "CROSS " else f" ON {draw(st.sampled_from(['a.k = c.k', 'a.b = c.k', 'a.n = c.n']))}"
        if on and draw(st.booleans()):
            on += f" AND {condition(draw, sources, 0)}"
        text += f" {kind}JOIN u c{on}"
    if draw(st.booleans()):
        text += f" WHERE {condition(draw, sources, 2)}"
    shape = draw(st.sampled_from(["rows", "rows", "distinct", "groups", "total", "nested"]))
    if shape == "groups":
        keys = draw(
            st.lists(st.sampled_from(["a.n", "a.g", "year(a.g)", "a.f", "a.d"]), min_size=1, max_size=2, unique=True)
        )
        calls = [_aggregate(draw, sources) for _ in range(draw(st.integers(1, 3)))]
        having = f" HAVING {calls[0]} IS NOT NULL" if draw(st.booleans()) else ""
        items = ", ".join(f"{item} AS o{i}" for i, item in enumerate([*keys, *calls]))
        return f"SELECT {items} {text} GROUP BY {', '.join(keys)}{having}"
    if shape == "total":
        calls = [_aggregate(draw, sources) for _ in range(draw(st.integers(1, 3)))]
        return f"SELECT {', '.join(f'{item} AS o{i}' for i, item in enumerate(calls))} {text}"
    if shape == "distinct":
        return f"SELECT DISTINCT a.n AS o0, a.d AS o1, a.g AS o2, a.ts AS o3 {text}"
    items = ", ".join(f"{_expression(draw, sources)} AS o{i}" for i in range(draw(st.integers(1, 5))))
    if shape == "nested":
        inner = f"SELECT a.n AS o0, {items.replace(' AS o', ' AS p')} {text}"
        return f"SELECT q.o0, count(*) AS m FROM ({inner}) q GROUP BY q.o0"
    return f"SELECT {items} {text}"
