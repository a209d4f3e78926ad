"""Random writes against random indexes: entries equal the definition, and answers equal a plain scan.

Without Spark: an index that is created on an empty table needs none, and plain columns and conditions are Arrow's.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from ebla.model.relation import Relation
from ebla.predicates import conditions as c
from ebla.tables.tiers import merge
from support.first_rows import ARROW, COLUMNS, STEPS, Row, costs, expected, key_of, requests, values_of
from support.folding import fold
from support.indexes import bag, entries
from support.warehouse import connect

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "25"))
WHERE: dict[str, Callable[[Row], bool]] = {
    "": lambda row: True,
    "WHERE n >= 0": lambda row: row["n"] is not None and row["n"] >= 0,
    "WHERE s LIKE 'a%' AND n IS NOT NULL": lambda row: (row["s"] or "").startswith("a") and row["n"] is not None,
    "WHERE f > 1": lambda row: row["f"] is not None and (math.isnan(row["f"]) or row["f"] > 1),
    "WHERE s IN ('a', 'A') AND n <= 1": lambda row: row["s"] in ("a", "A") and row["n"] is not None and row["n"] <= 1,
}


@st.composite
def indexes(draw: st.DrawFn) -> tuple[list[str], list[str], list[str], str]:
    """Columns, those that descend, included ones, condition."""
    columns = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3, unique=True))
    down = draw(st.lists(st.sampled_from(columns), unique=True))
    include = draw(
        st.lists(st.sampled_from([n for n in COLUMNS if n not in (*columns, "a", "b")] or ["a"]), unique=True)
    )
    return columns, down, include, draw(st.sampled_from(list(WHERE)))


def _asked(request: dict[str, Any], relation: Relation) -> c.Request:
    return c.request(relation, **request)


COMMON = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@COMMON
@given(
    made=st.lists(indexes(), min_size=1, max_size=3),
    steps=st.lists(STEPS | st.tuples(st.just("merge"), st.none()), min_size=1, max_size=10),
    asked=st.lists(requests(), min_size=3, max_size=8),
    scan_us=st.sampled_from([0.0, 1e9, 4000.0]),
    fetch_us=st.sampled_from([-1e6, 0.0, 150.0]),
    rows_max=st.sampled_from([0, 8, 200_000]),
)
def test_random_writes_against_random_indexes(made, steps, asked, scan_us, fetch_us, rows_max):
    """Whatever part of level 0 is read in its files."""
    rows: dict[tuple[Any, ...], Row] = {}
    given = {"auto_refresh": False, "level0_rows_max": rows_max}
    with TemporaryDirectory() as folder, connect(Path(folder) / "w", **given) as db, costs(20_000, scan_us, fetch_us):
        db.sql(f"CREATE TABLE t ({', '.join(f'{n} {k}' for n, k in COLUMNS.items())}, PRIMARY KEY (a, b))")
        for number, (columns, down, include, where) in enumerate(made):
            items = ", ".join(f"{n} DESC" if n in down else n for n in columns)
            beside = f"INCLUDE ({', '.join(include)})" if include else ""
            db.sql(f"CREATE INDEX i{number} ON t ({items}) {beside} {where}")
        for what, argument in steps:
            match what:
                case "upsert":
                    rows.update({key_of(row): row for row in argument})
                    db.table("t").upsert(pa.Table.from_pylist(argument, schema=ARROW))
                case "delete":
                    for key in argument:
                        rows.pop(key_of(key), None)
                    db.table("t").delete(argument)
                case "merge":
                    for name in ("t", *(f"i{n}" for n in range(len(made)))):
                        merge(db.context, name)
                case _:
                    tablets = [argument] if what == "fold one" else None
                    for name in ("t", *(f"i{n}" for n in range(len(made)))):
                        fold(db, name, row_group_rows=2, tablets=tablets)
        for number, (columns, _, include, where) in enumerate(made):
            shown = [
                *columns,
                *(k for k in ("a", "b") if k not in columns),
                *(n for n in include if n not in ("a", "b")),
            ]
            wanted = [{n: row[n] for n in shown} for row in rows.values() if WHERE[where](row)]
            table = pa.Table.from_pylist(wanted, schema=pa.schema([ARROW.field(n) for n in shown]))
            assert entries(db, f"i{number}") == bag(table.columns), (columns, where)
        for request in asked:
            answer = db.reader.query("t", partial(_asked, request))
            event(f"{'scan' if answer.plan.scan else 'seek'} {answer.plan.fitted.path.name[:1]}")
            assert values_of(answer.table) == expected(rows, request)[: request["limit"]], (request, answer.plan)


def test_conditions_say_what_the_model_says(tmp_path: Path):
    """The model's conditions are right: DuckDB, which Arrow is not, agrees."""
    import duckdb

    from support.first_rows import POOLS

    every = [
        {"a": "a", "b": 1, "s": s, "n": n, "f": f, "d": None, "day": None, "t": None}
        for s in POOLS["s"] for n in POOLS["n"] for f in POOLS["f"]
    ]  # fmt: skip
    table = pa.Table.from_pylist(every, schema=ARROW)
    with duckdb.connect() as duck:
        duck.register("model", table)
        for where, holds in WHERE.items():
            found = duck.sql(f"SELECT s, n, f FROM model {where}").to_arrow_table()
            wanted = table.filter(pa.array([holds(row) for row in every])).select(["s", "n", "f"])
            assert Counter(values_of(found)) == Counter(values_of(wanted)), where
