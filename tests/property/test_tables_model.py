"""A table against a dictionary: random writes, upkeep and reads at random versions, on real Spark.

The model is a dictionary of rows by key, and a copy of it for every version. Each run draws its settings too, so that
the driver's and Spark's ways to merge and to write are both taken.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyspark.sql import SparkSession

import ebla

pytestmark = pytest.mark.spark

Key = tuple[int, str]
Row = tuple[int | None, str | None]
Model = dict[Key, Row]

keys = st.tuples(st.integers(-2, 5), st.sampled_from(["", "a", "ü"]))
values = st.tuples(
    st.one_of(st.none(), st.integers(-(2**62), 2**62)), st.one_of(st.none(), st.sampled_from(["x", "y"]))
)
batches = st.lists(st.tuples(keys, values), min_size=1, max_size=6)

SCHEMA = pa.schema([("id", pa.int32()), ("s", pa.string()), ("n", pa.int64()), ("v", pa.string())])


def arrow(rows: list[tuple[Key, Row]]) -> pa.Table:
    flat = [{"id": k[0], "s": k[1], "n": r[0], "v": r[1]} for k, r in rows]
    return pa.Table.from_pylist(flat, schema=SCHEMA)


class TableAgainstDictionary(RuleBasedStateMachine):
    spark: SparkSession

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="ebla-model-")
        self.model: Model = {}
        self.history: dict[int, Model] = {}
        self.horizon = 0

    @initialize(
        tablets=st.sampled_from([1, 2, 8]),
        merge_on_spark=st.booleans(),
        bulk=st.booleans(),
        replication=st.sampled_from([1, 2]),
    )
    def create(self, tablets: int, merge_on_spark: bool, bulk: bool, replication: int) -> None:
        self.db = ebla.connect(
            f"{self.folder}/warehouse",
            spark=self.spark,
            auto_compact=False,
            level0_rows_max=0 if merge_on_spark else 200_000,
            batch_rows_max=2 if bulk else 200_000,
            nodes={"node2": f"{self.folder}/second"},
            fsync=False,
        )
        self.db.sql(
            "CREATE TABLE t (id INT, s STRING, n BIGINT, v STRING, PRIMARY KEY (id, s)) "
            f"WITH (tablets = {tablets}, replication = {replication})"
        )
        self.created = self.db.version
        self.remember()

    def remember(self) -> None:
        self.history[self.db.version] = dict(self.model)

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- writes -----------------------------------------------------------------------------------------

    @rule(rows=batches, as_list=st.booleans())
    def upsert(self, rows: list[tuple[Key, Row]], as_list: bool) -> None:
        table = arrow(rows)
        self.db.table("t").upsert(table.to_pylist() if as_list else table)
        self.model.update(rows)  # the last row of a key wins
        self.remember()

    @rule(rows=st.dictionaries(keys, values, min_size=1, max_size=4))
    def upsert_spark_frame(self, rows: Model) -> None:
        self.db.table("t").upsert(self.spark.createDataFrame(arrow(list(rows.items()))))
        self.model.update(rows)
        self.remember()

    @rule(gone=st.lists(keys, min_size=1, max_size=4))
    def delete(self, gone: list[Key]) -> None:
        self.db.table("t").delete([{"id": k[0], "s": k[1]} for k in gone])
        for key in gone:
            self.model.pop(key, None)
        self.remember()

    @rule(rows=st.dictionaries(keys, values, min_size=1, max_size=3))
    def insert(self, rows: Model) -> None:
        table = self.db.table("t")
        texts = ", ".join(f"(:i{i}, :s{i}, :n{i}, :v{i})" for i in range(len(rows)))
        given: dict[str, Any] = {}
        for i, (key, row) in enumerate(rows.items()):
            given |= {f"i{i}": key[0], f"s{i}": key[1], f"n{i}": row[0], f"v{i}": row[1]}
        before = self.db.version
        if rows.keys() & self.model.keys():
            with pytest.raises(ebla.DuplicateKeyError):
                self.db.sql(f"INSERT INTO {table.name} VALUES {texts}", **given)
            assert self.db.version == before
        else:
            self.db.sql(f"INSERT INTO {table.name} VALUES {texts}", **given)
            self.model.update(rows)
            self.remember()

    @rule(below=st.integers(-2, 6), text=st.sampled_from(["p", "q"]))
    def update(self, below: int, text: str) -> None:
        self.db.sql("UPDATE t SET v = :t, n = id WHERE id < :b", t=text, b=below)
        self.model = {k: (k[0], text) if k[0] < below else r for k, r in self.model.items()}
        self.remember()

    @rule(by=st.sampled_from([-1, 1, 3]))
    def move_keys(self, by: int) -> None:
        self.db.sql("UPDATE t SET id = id + :d", d=by)
        self.model = {(k[0] + by, k[1]): r for k, r in self.model.items()}
        self.remember()

    @rule(rows=st.dictionaries(keys, values, min_size=1, max_size=3))
    def merge(self, rows: Model) -> None:
        self.db.sql("CREATE TABLE IF NOT EXISTS src (id INT, s STRING, n BIGINT, v STRING, PRIMARY KEY (id, s))")
        self.db.sql("TRUNCATE TABLE src")
        self.db.table("src").upsert(arrow(list(rows.items())))
        self.db.sql(
            "MERGE INTO t USING src ON t.id = src.id AND t.s = src.s WHEN MATCHED AND src.n IS NULL THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET v = src.v WHEN NOT MATCHED THEN INSERT *"
        )
        for key, row in rows.items():
            if key not in self.model:
                self.model[key] = row
            elif row[0] is None:
                del self.model[key]
            else:
                self.model[key] = (self.model[key][0], row[1])
        self.remember()

    @rule()
    def truncate(self) -> None:
        self.db.sql("TRUNCATE TABLE t")
        self.model = {}
        self.remember()

    # ---- upkeep -----------------------------------------------------------------------------------------

    @rule()
    def compact(self) -> None:
        self.db.compact("t")
        self.remember()

    @rule()
    def vacuum(self) -> None:
        self.db.pins.release_all()  # nobody reads lazily any more
        done = self.db.vacuum(retain_s=0)
        self.horizon = max(self.horizon, int(done.horizon))
        self.remember()

    # ---- reads ------------------------------------------------------------------------------------------

    def read(self, version: int | None = None) -> Model:
        found = self.db.table("t").scan(version).toArrow().to_pylist()
        model = {(r["id"], r["s"]): (r["n"], r["v"]) for r in found}
        assert len(model) == len(found), "a key stands twice"
        return model

    @invariant()
    def newest_equals_model(self) -> None:
        if hasattr(self, "db"):
            assert self.read() == self.model

    @precondition(lambda self: len(self.history) > 1)
    @rule(pick=st.randoms(use_true_random=False))
    def read_old_version(self, pick: Any) -> None:
        version = pick.choice(sorted(self.history))
        if version < self.horizon:
            return
        note(f"reading version {version}")
        assert self.read(version) == self.history[version]

    @precondition(lambda self: len(self.history) > 1)
    @rule(pick=st.randoms(use_true_random=False), old=st.booleans())
    def read_changes(self, pick: Any, old: bool) -> None:
        usable = [v for v in sorted(self.history) if v >= max(self.horizon, self.created)]
        since, until = sorted((pick.choice(usable), pick.choice(usable)))
        found: dict[str, Model] = {}
        for r in self.db.table("t").changes(since, until, old=old).toArrow().to_pylist():
            kind = found.setdefault(r["_change_type"], {})
            assert (r["id"], r["s"]) not in kind
            kind[r["id"], r["s"]] = (r["n"], r["v"])
            assert since < r["_commit_version"] <= until
        before, after = self.history[since], self.history[until]
        assert found.get("insert", {}) == {k: r for k, r in after.items() if k not in before}
        assert found.get("delete", {}) == {k: r for k, r in before.items() if k not in after}
        updated = found.get("update_postimage", {})
        assert updated == {k: after[k] for k in updated}
        assert updated.keys() >= {k for k in before.keys() & after.keys() if before[k] != after[k]}
        assert found.get("update_preimage", {}) == ({k: before[k] for k in updated} if old else {})


@pytest.mark.timeout(900)
def test_a_table_is_a_dictionary_with_a_history(spark: SparkSession) -> None:
    machine = type("Machine", (TableAgainstDictionary,), {"spark": spark})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=10,
            stateful_step_count=10,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
