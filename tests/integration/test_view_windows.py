"""Windows without `PARTITION BY` on Spark: from the first changed position on, views are as recomputed.

Events that come later than all others cost what they bring: neither the view nor its input is read in front of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import ebla
from ebla.views.epoch.evaluate import Evaluation
from support.duck import State
from support.spellings import PLAIN
from support.view_queries import TABLES, Sql
from support.view_states import put
from support.warehouse import connect, rows, shown
from support.window_queries import moving_states, windowed

pytestmark = pytest.mark.spark

ROUNDS = 2
VIEWS = 8
EVENTS = 400
LATER = {
    "numbered": "SELECT id, at, row_number() OVER (ORDER BY at, id) AS n FROM events",
    "ranked": "SELECT id, day, rank() OVER (ORDER BY day) AS r, dense_rank() OVER (ORDER BY day) AS d FROM events",
    "balance": "SELECT id, at, sum(amount) OVER w AS balance, count(*) OVER w AS n FROM events "
    "WINDOW w AS (ORDER BY at, id)",
    "extremes": "SELECT id, at, min(amount) OVER w AS low, max(kind) OVER w AS last_kind, "
    "first_value(kind) OVER w AS f FROM "
    "events WINDOW w AS (ORDER BY at, id)",
    "steps": "SELECT e.id, e.at, e.amount - lag(e.amount, 2) OVER (ORDER BY e.at, e.id) AS step, k.name "
    "FROM events e LEFT JOIN kinds k ON e.kind = k.kind",
    "next_one": "SELECT id, at, lead(id) OVER (ORDER BY at, id) AS next, "
    "sum(amount) OVER (ORDER BY at, id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS around FROM events",
    "days": "SELECT day, sum(sum(amount)) OVER (ORDER BY day) AS so_far FROM events GROUP BY day",
}
"""All of them go on from the rows in front of them."""
MOVED = LATER.keys() - {"ranked", "days"}
"""Those that a change of `at` alone changes."""


@pytest.fixture(params=[False, True], ids=["driver", "spark"])
def db(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    quiet: dict[str, Any] = {"auto_refresh": False, "driver_rows_max": 0 if request.param else 10_000, "tablets": 2}
    with connect(tmp_path / "warehouse", spark, **quiet) as database:
        yield database


def event(n: int, at: int) -> dict[str, object]:
    return {
        "id": n,
        "at": datetime.fromtimestamp(at, UTC),
        "day": date(2024, 1, 1 + n // 20),
        "kind": f"k{n % 3}",
        "amount": None if n % 7 == 0 else Decimal(n % 11 - 4) / 2,
    }


def test_later_events_are_followed_by_what_they_bring(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql(
        """CREATE TABLE events (id BIGINT, at TIMESTAMP, day DATE, kind STRING, amount DECIMAL(12,2), PRIMARY KEY (id));
        CREATE TABLE kinds (kind STRING, name STRING, PRIMARY KEY (kind))"""
    )
    db.table("kinds").upsert([{"kind": "k0", "name": "a"}, {"kind": "k1", "name": "b"}])
    db.table("events").upsert([event(n, 3 * n) for n in range(EVENTS)])
    for name, query in LATER.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    read: dict[str, int] = {}
    original = Evaluation.in_scope

    def counted(self: Evaluation, bounds: Any, *, whole: bool) -> pa.Table:
        assert not whole
        read[self.view.relation.name] = sum(table.num_rows for table in bounds.leaves.values())
        return original(self, bounds, whole=whole)

    def refused(self: Evaluation, frame: Any) -> pa.Table:
        raise AssertionError(f"{self.view.relation.name} is computed over whole inputs")

    monkeypatch.setattr(Evaluation, "in_scope", counted)
    monkeypatch.setattr(Evaluation, "collected", refused)
    changes = [
        [event(EVENTS, 3 * EVENTS), event(EVENTS + 1, 3 * EVENTS)],  # at the end, two at one time
        [event(EVENTS - 2, 3 * EVENTS - 3)],  # a few rows back
        [event(EVENTS - 4, 3 * EVENTS + 9)],  # from there to the end
        [event(EVENTS + 2, 3 * EVENTS - 5)],  # between two
    ]
    for some in changes:
        read.clear()
        db.table("events").upsert(some)
        db.sql("FLUSH")
        for name, query in LATER.items():
            assert shown(db, name) == db_rows(db, query), name
        assert read.keys() >= MOVED
        assert max(read.values()) < 40, read
    read.clear()
    db.table("events").delete([{"id": EVENTS - 1}, {"id": EVENTS + 1}])
    db.sql("FLUSH")
    for name, query in LATER.items():
        assert shown(db, name) == db_rows(db, query), name
    assert max(read.values()) < 40, read
    monkeypatch.undo()
    db.table("events").upsert([event(3, 0)])  # all of them, the whole inputs or not
    db.sql("DELETE FROM events WHERE id < 2")
    db.sql("FLUSH")
    for name, query in LATER.items():
        assert shown(db, name) == db_rows(db, query), name
    plans = dict(rows(db, "SELECT name, last_plan FROM system.views"))
    assert set(plans.values()) == {"incremental"}


def db_rows(db: ebla.Database, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(db.sql(query).rows())


def test_plans_say_what_is_read_and_what_goes_on(db: ebla.Database) -> None:
    db.sql("CREATE TABLE t (id BIGINT, at INT, x INT, f DOUBLE, PRIMARY KEY (id))")

    def plan(query: str) -> tuple[Mapping[str, Any], list[str]]:
        found = db.sql(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {query}").rows()[0][1]
        change = json.loads(found)["inputs"]["t"]
        return change, [step["text"] for step in change.get("steps", [])]

    _, steps = plan("SELECT id, at, row_number() OVER (ORDER BY at, id) AS n, lag(x, 3) OVER (ORDER BY at) AS l FROM t")
    assert steps == [
        "(at) of the changed rows of t, old and new",
        "the view's own rows from 3 rows before the first affected at on, and those right before them for (n)",
        "t by (at)",
        "compute rows from the first affected at on, let (n) go on from the row before, and write the difference",
    ]
    _, steps = plan("SELECT id, at, lead(x) OVER (ORDER BY at DESC NULLS FIRST) AS n FROM t")
    start = "1 row before the first affected at DESC NULLS FIRST"
    assert steps[-1] == f"compute rows from {start} on, and write the difference"
    for query in (
        "SELECT id, at, avg(x) OVER (ORDER BY at) AS n FROM t",
        "SELECT id, at, sum(f) OVER (ORDER BY at) AS n FROM t",  # how doubles are added decides what they are
    ):
        _, steps = plan(query)
        assert steps[-2:] == [
            "t whole",
            "compute all rows, compare those from the first affected at on, and write the difference",
        ]
    change, _ = plan("SELECT id, ntile(4) OVER (ORDER BY at) AS n FROM t")
    assert change["plan"] == "full refresh"
    assert change["reason"].endswith("ntile over all rows sees every row")
    change, _ = plan("SELECT id, sum(x) OVER () AS n FROM t")
    assert change["reason"].endswith("has no ORDER BY")


@pytest.mark.parametrize("db", [False, True], indirect=True, ids=["driver", "spark"])
def test_random_windows_stay_exact_on_spark(db: ebla.Database, request: pytest.FixtureRequest) -> None:
    for table in TABLES:
        db.sql(PLAIN.create(table))
    nothing: State = {table: {} for table in TABLES}
    now = [nothing]

    @settings(
        max_examples=ROUNDS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @seed(len(request.node.name))
    @given(
        sqls=st.lists(windowed(), min_size=VIEWS, max_size=VIEWS, unique_by=lambda one: one.text),
        both=moving_states(),
    )
    def one_round(sqls: list[Sql], both: tuple[State, State]) -> None:
        old, new = both
        put(db, now[0], old)
        names = [f"v{i}" for i in range(len(sqls))]
        for name, sql in zip(names, sqls, strict=True):
            note(sql.text)
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {sql.text}")
        for before, after in ((old, new), (new, old)):
            put(db, before, after)
            db.sql("FLUSH")
            for name, sql in zip(names, sqls, strict=True):
                assert shown(db, name) == db_rows(db, sql.text), sql.text
        now[0] = old
        for name in names:
            db.sql(f"DROP MATERIALIZED VIEW {name}")

    one_round()
