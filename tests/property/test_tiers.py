"""Level 0 merged, in files, against a dictionary: whatever was written, deleted, merged and folded before."""

from __future__ import annotations

import os
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import ebla
from ebla.catalog import reads
from ebla.model.relation import RunSource
from ebla.tables.tiers import merge
from support.folding import fold, snapshot_rows

EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "25"))
TABLETS = 4
KEYS = st.integers(0, 11)
STEPS = st.lists(
    st.tuples(st.just("write"), st.dictionaries(KEYS, st.integers(0, 99), min_size=1, max_size=6))
    | st.tuples(st.just("delete"), st.sets(KEYS, min_size=1, max_size=4))
    | st.tuples(st.just("merge"), st.sampled_from([3, 8, 10**6]))
    | st.tuples(st.just("fold"), st.sets(st.integers(0, TABLETS - 1), min_size=1)),
    min_size=2,
    max_size=14,
)
Step = tuple[str, dict[int, int] | set[int] | int]


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps=STEPS, nodes=st.sampled_from([0, 2]))
def test_every_version_has_the_rows_of_a_dictionary(steps: list[Step], nodes: int) -> None:
    """With more nodes a commit has a run on each of them."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        more = {f"more{n}": f"{folder}/more{n}" for n in range(nodes)}
        limits: dict[str, Any] = {"auto_compact": False, "auto_refresh": False, "tablets": TABLETS, "nodes": more}
        db = stack.enter_context(ebla.connect(f"{folder}/w", **limits))
        db.sql("CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id))")
        rows: dict[int, int] = {}
        versions = {db.context.catalog.version(): dict(rows)}
        written = 0
        for what, argument in steps:
            written += _take(db, what, argument, rows)
            versions[db.context.catalog.version()] = dict(rows)
            assert _page(db) == rows
        with db.context.catalog.reading() as connection:
            table = reads.relation(connection, "t")
            for version, expected in versions.items():
                found = snapshot_rows(db, reads.snapshot(connection, table, version))
                assert dict(zip(*(found[c.physical].to_pylist() for c in table.columns), strict=True)) == expected
            feed = reads.writes_between(connection, table, min(versions), max(versions))
        assert sum(run.rows for run in feed) == written
        assert all(run.source is RunSource.WRITE for run in feed)


def _take(db: ebla.Database, what: str, argument: object, rows: dict[int, int]) -> int:
    """How many rows were written."""
    match what, argument:
        case "write", dict():
            rows |= argument
            db.table("t").upsert([{"id": k, "n": n} for k, n in argument.items()])
            return len(argument)
        case "delete", set():
            for key in argument:
                rows.pop(key, None)
            db.table("t").delete([{"id": key} for key in argument])
            return len(argument)
        case "merge", int():
            merge(db.context.tuned(level0_rows_max=argument), "t")
        case "fold", set():
            fold(db, "t", tablets=argument)
    return 0


def _page(db: ebla.Database) -> dict[int, int]:
    page = db.query("t", order_by="id").to_arrow()
    return dict(zip(page["id"].to_pylist(), page["n"].to_pylist(), strict=True))
