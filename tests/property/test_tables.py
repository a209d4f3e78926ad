"""A table against a dictionary: whatever is written, compacted, vacuumed and read, both say the same.

A failing run prints its steps as Python calls. They are not made fewer, as each costs Spark a part of a second.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from ebla.catalog import reads
from ebla.errors import DuplicateKeyError
from ebla.tables import sink
from ebla.values import token as tokens
from support.warehouse import connect, named, open_transactions, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

IN_CI = os.environ.get("CI") == "true"
EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "2"))
"""Of each setup. More of them, as in EBLA_EXAMPLES=50, are for nights."""
STEPS = 16

Key = tuple[Any, ...]
Row = tuple[Any, ...]
"""The values of `v` and `s`."""

KEYS = {
    "bigint": {"id": "BIGINT"},
    "string": {"name": "STRING"},
    "composite": {"name": "STRING", "id": "INT"},
}
VALUES_OF_KEY = {"id": st.integers(0, 5), "name": st.sampled_from(["", "a", "B", "é", "🙂 it's"])}
NUMBERS = st.none() | st.integers(-2, 3)
TEXTS = st.none() | st.sampled_from(["", "x", "ü", "two words"])
SMALL = sink.SMALL_BYTES


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How a table is laid out, and which paths of the code its size takes."""

    key: str
    tablets: int
    nodes: int = 1
    replication: int = 1
    level0_rows_max: int = 200_000
    batch_rows_max: int = 200_000
    small_bytes: int = SMALL


SETUPS = {
    "small": Setup(key="bigint", tablets=8),
    "merged by Spark": Setup(key="string", tablets=1, level0_rows_max=0),
    "sometimes bulk": Setup(key="composite", tablets=8, batch_rows_max=3, level0_rows_max=4),
    "all by Spark": Setup(key="composite", tablets=2, batch_rows_max=0, level0_rows_max=0, small_bytes=0),
    "copies": Setup(key="composite", tablets=8, nodes=3, replication=2),
    "copies by Spark": Setup(key="bigint", tablets=4, nodes=2, replication=2, batch_rows_max=0, level0_rows_max=0),
}


@dataclass(kw_only=True)
class Model:
    """What the table should hold now, at every version before, and which keys each version touched."""

    rows: dict[Key, Row] = field(default_factory=dict)
    versions: dict[int, dict[Key, Row]] = field(default_factory=dict)
    touched: dict[int, set[Key]] = field(default_factory=dict)
    truncated: set[int] = field(default_factory=set)

    def commit(self, version: int, *, upserts: dict[Key, Row], deletes: set[Key]) -> None:
        for key in deletes:
            self.rows.pop(key, None)
        self.rows |= upserts
        self.touched[version] = {*upserts, *deletes}
        self.versions[version] = dict(self.rows)

    def truncate(self, version: int) -> None:
        self.rows = {}
        self.truncated.add(version)
        self.versions[version] = {}

    def at(self, version: int) -> dict[Key, Row]:
        return self.versions[max(v for v in self.versions if v <= version)]

    def changes(self, since: int, until: int, *, old: bool) -> list[tuple[Any, ...]]:
        """Net per key: the row before, the row after, and the last commit that touched it."""
        before, after = self.at(since), self.at(until)
        last: dict[Key, int] = {}
        for version in range(since + 1, until + 1):
            if version in self.truncated:
                last = dict.fromkeys(before, version)
            last |= dict.fromkeys(self.touched.get(version, ()), version)
        found: list[tuple[Any, ...]] = []
        for key, version in last.items():
            was, now = before.get(key), after.get(key)
            if was is not None and now is not None:
                found += [(*key, *was, "update_preimage", version)] if old else []
                found.append((*key, *now, "update_postimage", version))
            elif now is not None:
                found.append((*key, *now, "insert", version))
            elif was is not None:
                found.append((*key, *was, "delete", version))
        return sorted(found, key=repr)


class Tables(RuleBasedStateMachine):
    def __init__(self, spark: SparkSession, folder: Path, setup: Setup) -> None:
        super().__init__()
        self.spark = spark
        self.folder = folder
        self.setup = setup

    @initialize()
    def create(self) -> None:
        setup = self.setup
        self.columns = KEYS[setup.key]
        sink.SMALL_BYTES = setup.small_bytes
        self.db = connect(
            self.folder / "warehouse",
            self.spark,
            nodes={f"node{n}": str(self.folder / f"node{n}") for n in range(2, setup.nodes + 1)},
            tablets=setup.tablets,
            replication=setup.replication,
            level0_rows_max=setup.level0_rows_max,
            batch_rows_max=setup.batch_rows_max,
        )
        declared = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        self.db.sql(f"CREATE TABLE t ({declared}, v INT, s STRING, PRIMARY KEY ({', '.join(self.columns)}))")
        self.table = self.db.table("t")
        self.model = Model(versions={self.db.version: {}})

    def teardown(self) -> None:
        """At the end every version that is left is what it was, and no file is there without an owner."""
        sink.SMALL_BYTES = SMALL
        if not hasattr(self, "model"):
            return
        for version in range(self._oldest(), self.db.version + 1):
            assert self._rows(version) == self._expected(version), f"version {version}"
        for half in (0, 1):
            self._check_tablets(set(range(half, self.setup.tablets, 2)))
        self.db.pins.release_all()
        assert not open_transactions(self.db)
        self.db.vacuum(retain_s=0)
        assert stored(self.db) == named(self.db)
        assert self._rows() == self._expected()
        self.db.close()

    # ---- values -----------------------------------------------------------------------------------------

    def _dict(self, key: Key, row: Row) -> dict[str, Any]:
        return {**dict(zip(self.columns, key, strict=True)), "v": row[0], "s": row[1]}

    def _draw_rows(self, data: st.DataObject, *, most: int, unique: bool) -> list[tuple[Key, Row]]:
        keys = st.tuples(*[VALUES_OF_KEY[name] for name in self.columns])
        pairs = st.lists(
            st.tuples(keys, st.tuples(NUMBERS, TEXTS)),
            min_size=1,
            max_size=most,
            unique_by=(lambda pair: pair[0]) if unique else None,
        )
        return data.draw(pairs, label="rows")

    def _arrow(self, rows: list[dict[str, Any]]) -> pa.Table:
        kinds = {"id": pa.int64() if self.setup.key == "bigint" else pa.int32(), "v": pa.int32()}
        return pa.table({n: pa.array([r[n] for r in rows], kinds.get(n, pa.string())) for n in rows[0]})

    def _given(self, rows: list[dict[str, Any]], way: str) -> Any:
        if way == "list":
            return rows
        table = self._arrow(rows)
        return table if way == "arrow" else self.spark.createDataFrame(table)

    def _values(self, rows: list[tuple[Key, Row]]) -> tuple[str, dict[str, Any]]:
        """Rows as `(:p0, :p1), …`, and the parameters."""
        flat = [value for key, row in rows for value in (*key, *row)]
        width = len(self.columns) + 2
        kinds = itertools.cycle([*self.columns.values(), "INT", "STRING"])
        marks = [f"CAST(:p{i} AS {kind})" for i, (_, kind) in enumerate(zip(flat, kinds, strict=False))]
        groups = [f"({', '.join(marks[i : i + width])})" for i in range(0, len(marks), width)]
        return ", ".join(groups), {f"p{i}": value for i, value in enumerate(flat)}

    # ---- rows from Python and Spark ---------------------------------------------------------------------

    @rule(data=st.data(), way=st.sampled_from(["list", "arrow", "spark"]))
    def upsert(self, data: st.DataObject, way: str) -> None:
        rows = self._draw_rows(data, most=6, unique=way == "spark")
        self.table.upsert(self._given([self._dict(*pair) for pair in rows], way))
        self.model.commit(self.db.version, upserts=dict(rows), deletes=set())

    @rule(data=st.data(), way=st.sampled_from(["list", "arrow", "spark"]))
    def delete(self, data: st.DataObject, way: str) -> None:
        keys = [key for key, _ in self._draw_rows(data, most=4, unique=True)]
        rows = [dict(zip(self.columns, key, strict=True)) for key in keys]
        self.table.delete(self._given(rows, way))
        self.model.commit(self.db.version, upserts={}, deletes=set(keys))

    # ---- statements -------------------------------------------------------------------------------------

    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        rows = self._draw_rows(data, most=3, unique=False)
        values, parameters = self._values(rows)
        keys = [key for key, _ in rows]
        if len(set(keys)) < len(keys) or any(key in self.model.rows for key in keys):
            self._refused(f"INSERT INTO t VALUES {values}", parameters)
            return
        self.db.sql(f"INSERT INTO t VALUES {values}", **parameters)
        self.model.commit(self.db.version, upserts=dict(rows), deletes=set())

    @rule(least=st.integers(-2, 3), step=st.integers(1, 2))
    def update(self, least: int, step: int) -> None:
        before = self.db.version
        self.db.sql("UPDATE t SET v = v + :step, s = concat(s, '+') WHERE v >= :least", step=step, least=least)
        hit = {
            k: (v + step, None if s is None else s + "+")
            for k, (v, s) in self.model.rows.items()
            if _at_least(v, least)
        }
        if not hit:
            assert self.db.version == before
            return
        self.model.commit(self.db.version, upserts=hit, deletes=set())

    @precondition(lambda self: "id" in self.columns)
    @rule(least=st.integers(-2, 3))
    def move_keys(self, least: int) -> None:
        text = f"UPDATE t SET id = id + 1 WHERE v >= {least} AND id < 9"
        place = list(self.columns).index("id")
        moved = {k: r for k, r in self.model.rows.items() if _at_least(r[0], least)}
        upserts = {(*k[:place], k[place] + 1, *k[place + 1 :]): r for k, r in moved.items()}
        if any(k in self.model.rows and k not in moved for k in upserts):
            self._refused(text, {})
            return
        before = self.db.version
        self.db.sql(text)
        if not moved:
            assert self.db.version == before
            return
        self.model.commit(self.db.version, upserts=upserts, deletes=set(moved) - set(upserts))

    @rule(rest=st.integers(0, 1))
    def delete_where(self, rest: int) -> None:
        gone = {k for k, (v, _) in self.model.rows.items() if v is not None and v % 2 == rest}
        self.db.sql("DELETE FROM t WHERE pmod(v, 2) = :rest", rest=rest)
        if gone:
            self.model.commit(self.db.version, upserts={}, deletes=gone)

    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        """Matched rows are deleted where the source has no number, and replaced otherwise; others are inserted."""
        rows = self._draw_rows(data, most=4, unique=True)
        values, parameters = self._values(rows)
        on = " AND ".join(f"t.{name} = n.{name}" for name in self.columns)
        names = ", ".join([*self.columns, "v", "s"])
        self.db.sql(
            f"MERGE INTO t USING (SELECT * FROM VALUES {values} AS x({names})) AS n ON {on} "
            "WHEN MATCHED AND n.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = n.v, s = t.s "
            "WHEN NOT MATCHED THEN INSERT *",
            **parameters,
        )
        upserts: dict[Key, Row] = {}
        deletes: set[Key] = set()
        for key, (v, s) in rows:
            if key not in self.model.rows:
                upserts[key] = (v, s)
            elif v is None:
                deletes.add(key)
            else:
                upserts[key] = (v, self.model.rows[key][1])
        self.model.commit(self.db.version, upserts=upserts, deletes=deletes)

    @rule()
    def truncate(self) -> None:
        self.db.sql("TRUNCATE TABLE t")
        self.model.truncate(self.db.version)

    def _refused(self, text: str, parameters: dict[str, Any]) -> None:
        before = self.db.version
        with pytest.raises(DuplicateKeyError):
            self.db.sql(text, **parameters)
        assert self.db.version == before

    # ---- upkeep -----------------------------------------------------------------------------------------

    @rule()
    def compact(self) -> None:
        self.db.compact("t")

    @rule()
    def vacuum(self) -> None:
        self.db.pins.release_all()  # frames of earlier steps are read and done with
        self.db.vacuum(retain_s=0)
        assert stored(self.db) == named(self.db)

    # ---- reads ------------------------------------------------------------------------------------------

    @rule(back=st.integers(0, 30))
    def read(self, back: int) -> None:
        version = max(self._oldest(), self.db.version - back)
        assert self._rows(version) == self._expected(version), f"version {version}"

    @rule(data=st.data())
    def read_tablets(self, data: st.DataObject) -> None:
        self._check_tablets(data.draw(st.sets(st.integers(0, self.setup.tablets - 1), min_size=1), label="tablets"))

    def _check_tablets(self, wanted: set[int]) -> None:
        found = sorted(map(tuple, self.table.scan(tablets=sorted(wanted)).collect()), key=repr)
        kinds = [kind.lower() for kind in self.columns.values()]
        expected = [
            (*key, *row)
            for key, row in self.model.rows.items()
            if tokens.tablet_of(tokens.token_of(key, kinds), self.setup.tablets) in wanted
        ]
        assert found == sorted(expected, key=repr)

    @rule(first=st.integers(0, 30), second=st.integers(0, 30), old=st.booleans())
    def changes(self, first: int, second: int, old: bool) -> None:
        since, until = sorted(max(self._oldest(), self.db.version - back) for back in (first, second))
        frame = self.table.changes(since, until, old=old)
        found = sorted((tuple(r)[:-1] for r in frame.collect()), key=repr)
        assert found == self.model.changes(since, until, old=old), f"changes({since}, {until})"

    def _oldest(self) -> int:
        """The oldest version that can still be read."""
        with self.db.context.catalog.reading() as connection:
            relation = reads.relation(connection, "t")
        return int(max(relation.horizon, relation.created_version))

    def _rows(self, version: int | None = None) -> list[tuple[Any, ...]]:
        text = "SELECT * FROM t" if version is None else f"SELECT * FROM t VERSION AS OF {version}"
        return sorted(self.db.sql(text).rows(), key=repr)

    def _expected(self, version: int | None = None) -> list[tuple[Any, ...]]:
        rows = self.model.rows if version is None else self.model.at(version)
        return sorted(((*key, *row) for key, row in rows.items()), key=repr)


def _at_least(value: int | None, least: int) -> bool:
    return value is not None and value >= least


@pytest.mark.timeout(900)
@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS.keys())
def test_a_table_is_a_dictionary_with_a_past(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, setup: Setup
) -> None:
    run_state_machine_as_test(
        lambda: Tables(spark, tmp_path_factory.mktemp("tables"), setup),  # type: ignore[arg-type]
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=IN_CI,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
