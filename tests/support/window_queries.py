"""Queries with windows without `PARTITION BY`, for property tests. Each says which row comes first where it matters."""

from __future__ import annotations

from hypothesis import strategies as st

from support.duck import Row, State
from support.view_queries import ROWS, TABLES, Sql

SOURCES = [
    ("a AS t", ("t.id",), ("t.id", "t.x", "t.y")),
    ("a AS t", ("t.id",), ("t.id", "t.x", "t.y")),
    ("a AS t", ("t.id",), ("t.id", "t.x", "t.y", "t.s")),
    ("a AS t JOIN b AS u ON t.x = u.x", ("t.id", "u.id"), ("t.id", "t.y", "u.id", "u.y", "u.x")),
    ("a AS t LEFT JOIN b AS u ON t.x = u.id", ("t.id", "u.id"), ("t.id", "t.x", "u.y")),
    ("a AS t RIGHT JOIN b AS u ON t.id = u.x", ("t.id", "u.id"), ("t.y", "u.id", "u.x")),
    ("(SELECT id, x, y, 1 AS g FROM a UNION ALL SELECT id, x, y, 2 FROM b) AS t", ("t.g", "t.id"), ("t.id", "t.x")),
    ("(SELECT x, max(y) AS y, count(*) AS id FROM a GROUP BY x) AS t", ("t.x",), ("t.x", "t.y")),
    ("w AS t JOIN w AS u ON t.x = u.id", ("t.id", "u.id"), ("t.id", "t.y", "u.y")),
    ("w AS t", ("t.id",), ("t.id", "t.y")),
]
"""What stands behind FROM, the columns that tell its rows apart, and those that windows are ordered by."""
CONDITIONS = ["", "", " WHERE t.y > 0", " WHERE t.x IS NOT NULL", " WHERE t.x IN (SELECT c.x FROM c)"]
ORDERS = ["", "", "", " DESC", " NULLS LAST", " DESC NULLS FIRST"]
BY_PEERS = [
    "rank()",
    "dense_rank()",
    "count(*)",
    "count(t.x)",
    "count(t.x) FILTER (WHERE t.y > 1)",
    "sum(t.y)",
    "sum(t.y)",
    "min(t.y)",
    "max(t.x)",
    "avg(t.y)",
]
"""The same for rows that their order leaves equal."""
BY_ROWS = ["row_number()", "row_number()", "first_value(t.y)", "last_value(t.y)"]
BY_ROWS += ["lag(t.y)", "lag(t.x, 2)", "lag(t.y, 0)", "lag(t.x, 1, 9)", "lead(t.y)", "lead(t.x, 2)"]
FRAMED = ["sum(t.y)", "count(*)", "min(t.x)", "max(t.y)", "first_value(t.x)", "last_value(t.x)"]
FRAMES = [
    "UNBOUNDED PRECEDING",
    "2 PRECEDING",
    "BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
    "BETWEEN 3 PRECEDING AND 1 PRECEDING",
    "BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "BETWEEN CURRENT ROW AND 2 FOLLOWING",
    "BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
]


@st.composite
def moving_states(draw: st.DrawFn) -> tuple[State, State]:
    """Tables of some rows, and the same when a few of them came, went or moved."""
    old: State = {table: {} for table in TABLES}
    for table, most in (("a", 9), ("b", 5)):
        keys = draw(st.lists(st.integers(0, 9), min_size=most // 2, max_size=most, unique=True))
        old[table] = {(key,): draw(_row(table, key)) for key in keys}
    old["c"] = {(i, "p"): {"k1": i, "k2": "p", "x": i} for i in range(3)}
    new = {table: dict(rows) for table, rows in old.items()}
    for table in draw(st.sampled_from([["a"], ["a"], ["b", "a"], ["b"]])):
        keys = draw(st.lists(st.one_of(st.integers(7, 11), st.integers(0, 11)), min_size=1, max_size=2))
        for key in keys:
            new[table].pop((key,), None)
            if draw(st.integers(0, 3)):
                new[table][(key,)] = draw(_row(table, key))
    return old, new


@st.composite
def _row(draw: st.DrawFn, table: str, key: int) -> Row:
    """A row that mostly lies near those of the next keys, whichever column they are ordered by."""
    row = draw(ROWS[table])
    near = {"x": key // 2, "y": key // 3} if draw(st.integers(0, 3)) else {}
    return {**row, **near, "id": key}


@st.composite
def windowed(draw: st.DrawFn) -> Sql:
    source, key, columns = draw(st.sampled_from(SOURCES))
    first = draw(st.sampled_from(columns)) + draw(st.sampled_from(ORDERS))
    rest = [column + draw(st.sampled_from(ORDERS)) for column in draw(st.permutations(key))]
    every = f"ORDER BY {', '.join([first, *rest])}"
    column = first.split()[0]
    kind = "string" if column == "t.s" else "bigint"
    shown = [(column, kind)]
    shown += [(one, "bigint") for one in draw(st.lists(st.sampled_from(key), max_size=2)) if one != "t.g"]
    for _ in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(["peers", "peers", "rows", "rows", "frame"]))
        if form == "peers":
            call = draw(st.sampled_from(BY_PEERS))
            over = draw(st.sampled_from([every, f"ORDER BY {first}"]))
        elif form == "rows":
            call, over = draw(st.sampled_from(BY_ROWS)), every
        else:
            call, over = draw(st.sampled_from(FRAMED)), f"{every} ROWS {draw(st.sampled_from(FRAMES))}"
        text = f"{call} OVER ({over})"
        if draw(st.integers(0, 9)) == 0:
            text += " + 1"
        shown.append((text, "double" if call.startswith("avg") else "bigint"))
    items = ", ".join(f"{text} AS o{place}" for place, (text, _) in enumerate(shown))
    text = f"SELECT {items} FROM {source}{draw(st.sampled_from(CONDITIONS))}"
    if draw(st.integers(0, 9)) == 0:
        text += f" QUALIFY row_number() OVER ({every}) > 1"
    if source.startswith("w "):
        text = f"WITH w AS (SELECT * FROM a) {text}"
    return Sql(text, tuple((f"o{place}", kind) for place, (_, kind) in enumerate(shown)))
