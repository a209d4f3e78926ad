"""Queries from the grammar of views, and changes from the schema, for property tests.

Domains are tiny and full of NULLs and duplicates, so that joins match, groups collide and keys move.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

TABLES: dict[str, dict[str, str]] = {
    "a": {"id": "bigint", "x": "bigint", "y": "bigint", "s": "string"},
    "b": {"id": "bigint", "x": "bigint", "y": "bigint", "s": "string"},
    "c": {"k1": "bigint", "k2": "string", "x": "bigint"},
    "d": {"x": "bigint", "s": "string", "rid": "bigint"},
}
KEYS: dict[str, tuple[str, ...]] = {"a": ("id",), "b": ("id",), "c": ("k1", "k2"), "d": ("rid",)}

numbers = st.one_of(st.none(), st.integers(0, 3))
texts = st.sampled_from(["p", "p", "q", "r", "P", "p ", ""])
words = st.one_of(st.none(), texts)


def values_of(kind: str, *, key: bool) -> st.SearchStrategy[object]:
    if kind == "bigint":
        return st.integers(0, 5) if key else numbers
    return texts if key else words


def _rows_of(table: str) -> st.SearchStrategy[dict[str, object]]:
    columns = TABLES[table].items()
    return st.fixed_dictionaries({c: values_of(kind, key=c in KEYS[table]) for c, kind in columns})


ROWS = {table: _rows_of(table) for table in TABLES}
"""Rows of each table."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A query's text and its output columns with their types."""

    text: str
    columns: tuple[tuple[str, str], ...]


class Names:
    """Aliases that are never used twice in one query."""

    def __init__(self) -> None:
        self._count = 0

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"


@dataclass(frozen=True, slots=True)
class Source:
    """A relation in FROM under an alias."""

    text: str
    alias: str
    columns: tuple[tuple[str, str], ...]


@st.composite
def queries(draw: st.DrawFn, depth: int = 2) -> Sql:
    return draw(_query(Names(), depth))


@st.composite
def _query(draw: st.DrawFn, names: Names, depth: int) -> Sql:
    kinds = ["select", "select", "group", "distinct", "window"]
    if depth > 0:
        kinds += ["union", "union", "with"]
    kind = draw(st.sampled_from(kinds))
    if kind == "union":
        return draw(_set_operation(names, depth))
    if kind == "with":
        return draw(_with(names, depth))
    return draw(_select(names, depth, kind))


@st.composite
def _with(draw: st.DrawFn, names: Names, depth: int) -> Sql:
    body = draw(_query(names, depth - 1))
    name = names.fresh("w")
    source = Source(name, names.fresh("t"), body.columns)
    inner = draw(_select(names, depth - 1, draw(st.sampled_from(["select", "group"])), first=source))
    return Sql(f"WITH {name} AS ({body.text}) {inner.text}", inner.columns)


@st.composite
def _set_operation(draw: st.DrawFn, names: Names, depth: int) -> Sql:
    left = draw(_select(names, depth - 1, "select"))
    wanted = [kind for _, kind in left.columns]
    right = draw(_select(names, depth - 1, "select", wanted=wanted))
    operator = draw(
        st.sampled_from(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "UNION ALL", "INTERSECT ALL", "EXCEPT ALL"])
    )
    return Sql(f"({left.text}) {operator} ({right.text})", left.columns)


@st.composite
def _source(draw: st.DrawFn, names: Names, depth: int) -> Source:
    alias = names.fresh("t")
    if depth > 0 and draw(st.integers(0, 3)) == 0:
        inner = draw(_query(names, depth - 1))
        return Source(f"({inner.text})", alias, inner.columns)
    if draw(st.integers(0, 11)) == 0:
        return draw(_constant_rows(names, alias))
    table = draw(st.sampled_from(sorted(TABLES)))
    return Source(table, alias, tuple(TABLES[table].items()))


@st.composite
def _constant_rows(draw: st.DrawFn, names: Names, alias: str) -> Source:
    number, word = names.fresh("o"), names.fresh("o")
    rows = [f"(CAST({i} AS BIGINT), '{draw(st.sampled_from('pqr'))}')" for i in range(draw(st.integers(1, 3)))]
    text = f"(SELECT * FROM VALUES {', '.join(rows)} AS {names.fresh('t')}({number}, {word}))"
    return Source(text, alias, ((number, "bigint"), (word, "string")))


@st.composite
def _lateral(draw: st.DrawFn, names: Names, sources: list[Source]) -> tuple[str, Source]:
    """A subquery that reads columns of what stands before it, of one row or of several."""
    table, inner, alias, name = draw(st.sampled_from(["a", "b"])), names.fresh("t"), names.fresh("t"), names.fresh("o")
    numeric = _columns(sources, "bigint") or [("1", "bigint")]
    outer = draw(st.sampled_from(numeric))[0]
    item = draw(st.sampled_from([f"max({inner}.y)", f"count({inner}.y)", f"{inner}.y", f"{inner}.y + {outer}"]))
    match = f"{inner}.{draw(st.sampled_from(['x', 'id']))} = {draw(st.sampled_from(numeric))[0]}"
    body = f"LATERAL (SELECT {item} AS {name} FROM {table} AS {inner} WHERE {match}) AS {alias}"
    join = draw(st.sampled_from([f" CROSS JOIN {body}", f" LEFT JOIN {body} ON true"]))
    return join, Source("", alias, ((name, "bigint"),))


def _columns(sources: list[Source], kind: str | None = None) -> list[tuple[str, str]]:
    return [
        (f"{source.alias}.{name}", of)
        for source in sources
        for name, of in source.columns
        if kind is None or of == kind
    ]


@st.composite
def _from(draw: st.DrawFn, names: Names, depth: int, first: Source | None) -> tuple[str, list[Source]]:
    sources = [first or draw(_source(names, depth))]
    text = f"{sources[0].text} AS {sources[0].alias}"
    for _ in range(draw(st.integers(0, 2))):
        other = draw(_source(names, depth))
        kind = draw(st.sampled_from(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]))
        left = sources[-1]
        shared = sorted({n for n, _ in left.columns} & {n for n, _ in other.columns} & {"id", "x"})
        if shared and len(sources) == 1 and kind in ("JOIN", "LEFT JOIN", "FULL JOIN") and draw(st.integers(0, 4)) == 0:
            text += f" {kind} {other.text} AS {other.alias} USING ({draw(st.sampled_from(shared))})"
        elif kind == "CROSS JOIN":
            text += f" CROSS JOIN {other.text} AS {other.alias}"
        else:
            text += f" {kind} {other.text} AS {other.alias} ON {draw(_on(sources, other))}"
        sources.append(other)
    if draw(st.integers(0, 7)) == 0:
        joined, made = draw(_lateral(names, sources))
        text, sources = text + joined, [*sources, made]
    return text, sources


@st.composite
def _on(draw: st.DrawFn, sources: list[Source], other: Source) -> str:
    kind = draw(st.sampled_from(sorted({k for _, k in other.columns})))
    ours = _columns(sources, kind)
    if not ours:
        return "1 = 1"
    left = draw(st.sampled_from(ours))[0]
    right = draw(st.sampled_from(_columns([other], kind)))[0]
    if draw(st.integers(0, 3)) == 0:
        form = draw(st.sampled_from(["{} % 2", "coalesce({}, 0)"] if kind == "bigint" else ["lower({})"]))
        left, right = form.format(left), draw(st.sampled_from([right, form.format(right)]))
    text = f"{left} = {right}"
    if draw(st.integers(0, 3)) == 0:
        more = draw(st.sampled_from(_columns([*sources, other], "bigint") or [("1", "bigint")]))[0]
        text += f" AND {more} > {draw(st.integers(0, 2))}"
    return text


@st.composite
def _predicate(draw: st.DrawFn, names: Names, sources: list[Source], depth: int) -> str:
    column, kind = draw(st.sampled_from(_columns(sources)))
    if kind == "double":
        return f"{column} IS NOT NULL"
    shape = draw(st.sampled_from(["compare", "null", "in", "exists", "or", "scalar", "perhaps", "link"]))
    if shape == "link":
        return draw(_link(sources))
    if shape == "scalar" and depth > 0:
        return draw(_scalar(names, sources))
    if shape == "perhaps" and depth > 0:
        table, inner = draw(st.sampled_from(["a", "b"])), names.fresh("t")
        numeric = _columns(sources, "bigint")
        if numeric:
            member = draw(st.sampled_from(numeric))[0]
            word = draw(st.sampled_from(["IN", "NOT IN"]))
            return f"({column} IS NULL OR {member} {word} (SELECT {inner}.x FROM {table} AS {inner}))"
    if shape in ("in", "exists") and depth > 0:
        table = draw(st.sampled_from(sorted(t for t, cs in TABLES.items() if kind in cs.values())))
        inner = names.fresh("t")
        of_kind = [n for n, k in TABLES[table].items() if k == kind]
        match = draw(st.sampled_from(of_kind))
        negated = draw(st.sampled_from(["", "NOT "]))
        more = ""
        if draw(st.booleans()) and "x" in TABLES[table]:
            more = f"{inner}.x > {draw(st.integers(0, 2))}"
        if shape == "in":
            where = f" WHERE {more}" if more else ""
            return f"{column} {negated}IN (SELECT {inner}.{match} FROM {table} AS {inner}{where})"
        joined = f"{inner}.{match} = {column}" + (f" AND {more}" if more else "")
        return f"{negated}EXISTS (SELECT 1 FROM {table} AS {inner} WHERE {joined})"
    if shape == "null":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    constant = str(draw(st.integers(0, 3))) if kind == "bigint" else f"'{draw(st.sampled_from('pqr'))}'"
    text = f"{column} {draw(st.sampled_from(['=', '<>', '<', '>=']))} {constant}"
    if shape == "or":
        other, _ = draw(st.sampled_from(_columns(sources)))
        text = f"({text} OR {other} IS NULL)"
    return text


@st.composite
def _link(draw: st.DrawFn, sources: list[Source]) -> str:
    """An equality that joins what FROM lists; perhaps one that both branches of an OR have."""
    column, kind = draw(st.sampled_from([c for c in _columns(sources) if c[1] != "double"] or [("1", "bigint")]))
    text = f"{column} = {draw(st.sampled_from(_columns(sources, kind) or [('1', kind)]))[0]}"
    if draw(st.booleans()):
        return text
    more = [f"{c} > {draw(st.integers(0, 2))}" for c, _ in _columns(sources, "bigint")[:2]] or ["1 = 1"]
    return f"(({text} AND {more[0]}) OR ({more[-1]} AND {text}))"


@st.composite
def _scalar(draw: st.DrawFn, names: Names, sources: list[Source]) -> str:
    """A comparison with a subquery's one value, perhaps one of the rows that match."""
    table, inner = draw(st.sampled_from(["a", "b"])), names.fresh("t")
    call = draw(st.sampled_from(["max", "min", "count", "sum"]))
    numeric = _columns(sources, "bigint") or [("1", "bigint")]
    where = ""
    if draw(st.integers(0, 3)) > 0:
        column = draw(st.sampled_from(["x", "y", "id"]))
        where = f" WHERE {inner}.{column} = {draw(st.sampled_from(numeric))[0]}"
    subquery = f"(SELECT {call}({inner}.y) FROM {table} AS {inner}{where})"
    return f"{draw(st.sampled_from(numeric))[0]} {draw(st.sampled_from(['<', '>=', '=']))} {subquery}"


@st.composite
def _expression(draw: st.DrawFn, sources: list[Source], kind: str | None) -> tuple[str, str]:
    found = _columns(sources, kind)
    if not found:
        constants = {"bigint": "0", "double": "CAST(0 AS DOUBLE)", "string": "'p'"}
        return constants[str(kind)], str(kind)
    column, of = draw(st.sampled_from(found))
    if of == "double":
        return column, of
    shape = draw(st.integers(0, 8))
    if shape == 0 and of == "bigint":
        return f"{column} + 1", of
    if shape == 2:
        return f"upper({column})" if of == "string" else f"{column} % 2", of
    if shape == 3:
        one, other = ("1", "2") if of == "bigint" else ("'p'", "'q'")
        return f"CASE WHEN {column} = {one} THEN {other} WHEN {column} IS NULL THEN {one} ELSE {column} END", of
    if shape == 1:
        fallback = "0" if of == "bigint" else "'p'"
        return f"coalesce({column}, {fallback})", of
    return column, of


@st.composite
def _select(
    draw: st.DrawFn,
    names: Names,
    depth: int,
    kind: str,
    first: Source | None = None,
    wanted: list[str] | None = None,
) -> Sql:
    text, sources = draw(_from(names, depth, first))
    conditions = [draw(_predicate(names, sources, depth)) for _ in range(draw(st.integers(0, 2)))]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    width = len(wanted) if wanted is not None else draw(st.integers(1, 4))
    items = [draw(_expression(sources, None if wanted is None else wanted[i])) for i in range(width)]
    if kind == "group":
        return draw(_grouped(names, text, where, sources, items[: draw(st.integers(0, 2))]))
    outputs = [(names.fresh("o"), of) for _, of in items]
    shown = [f"{expression} AS {name}" for (expression, _), (name, _) in zip(items, outputs, strict=True)]
    if kind == "window":
        partition = [c for c, _ in draw(st.lists(_expression(sources, None), max_size=2, unique=True))]
        over = f"PARTITION BY {', '.join(partition)}" if partition else ""
        measured = draw(st.sampled_from(_columns(sources)))[0]
        name = names.fresh("o")
        shown.append(f"count({measured}) OVER ({over}) AS {name}")
        outputs.append((name, "bigint"))
    distinct = "DISTINCT " if kind == "distinct" else ""
    return Sql(f"SELECT {distinct}{', '.join(shown)} FROM {text}{where}", tuple(outputs))


@st.composite
def _grouped(
    draw: st.DrawFn, names: Names, text: str, where: str, sources: list[Source], groups: list[tuple[str, str]]
) -> Sql:
    outputs = [(names.fresh("o"), of) for _, of in groups]
    shown = [f"{expression} AS {name}" for (expression, _), (name, _) in zip(groups, outputs, strict=True)]
    for _ in range(draw(st.integers(1, 3))):
        column, of = draw(st.sampled_from(_columns(sources)))
        numeric = _columns(sources, "bigint")
        calls = ["count", "min", "max", "count(DISTINCT"] + (["sum", "sum", "avg", "sum(2 *"] if numeric else [])
        call = draw(st.sampled_from(calls))
        name = names.fresh("o")
        some = draw(st.integers(0, 4)) == 0 and call != "count(DISTINCT"
        condition = f" FILTER (WHERE {column} IS NOT NULL)" if some else ""
        if call in ("sum", "avg", "sum(2 *"):
            column, of = draw(st.sampled_from(numeric))[0], "double" if call == "avg" else "bigint"
        elif call != "min" and call != "max":
            of = "bigint"
        opening = f"{call} " if "(" in call else f"{call}("
        shown.append(f"{opening}{column}){condition} AS {name}")
        outputs.append((name, of))
    if not groups and draw(st.booleans()):
        shown.append(f"count(*) AS {names.fresh('o')}")
        outputs.append((shown[-1].split()[-1], "bigint"))
    listed = ", ".join(e for e, _ in dict.fromkeys(groups))
    form = draw(st.sampled_from(["{}"] * 8 + ["ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())"]))
    by = f" GROUP BY {form.format(listed)}" if groups else ""
    having = " HAVING count(*) > 1" if draw(st.integers(0, 3)) == 0 else ""
    return Sql(f"SELECT {', '.join(shown)} FROM {text}{where}{by}{having}", tuple(outputs))
