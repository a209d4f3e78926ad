"""A merged scan that is asked for again leaves replaced rows of level 1 out by file and row number, and is the same."""

from __future__ import annotations

import math

import pytest

from ebla.catalog import reads
from ebla.tables.replaced_places import replaced_places
from ebla.tables.scans import frame_of
from support.warehouse import connect

pytestmark = pytest.mark.spark

BY_PLACE = "_ebla_place"


def seen(frame):
    return sorted((repr(row["f"]), row["s"], row["n"]) for row in frame.toArrow().to_pylist())


def test_rows_are_left_out_by_place_once_a_snapshot_is_read_again(tmp_path, spark):
    keys = [(value, text) for value in (math.nan, 0.0, 1.5, -2.0, *map(float, range(10, 40))) for text in ("a", "é")]
    rows = {key: n for n, key in enumerate(keys)}
    with connect(tmp_path / "w", spark, auto_compact=False, auto_refresh=False) as db:
        db.sql("CREATE TABLE t (f DOUBLE, s STRING, n BIGINT, PRIMARY KEY (f, s)) WITH (tablets = 4)")
        db.table("t").upsert([{"f": f, "s": s, "n": n} for (f, s), n in rows.items()])
        db.compact("t")
        for step in (2, 3):
            changed = {key: 1000 * step + n for n, key in enumerate(keys[::step])} | {(99.0 + step, "new"): step}
            db.table("t").upsert([{"f": f, "s": s, "n": n} for (f, s), n in changed.items()])
            rows |= changed
        for f, s in (keys[0], keys[5], (101.0, "new")):
            db.table("t").delete([{"f": f, "s": s}])
            del rows[f, s]
        expected = sorted((repr(f), s, n) for (f, s), n in rows.items())
        with db.context.catalog.reading() as connection:
            snapshot = reads.snapshot(connection, reads.relation(connection, "t"))
        first = frame_of(db.context, snapshot)
        assert frame_of(db.context, snapshot) is first, "an epoch looks no places up"
        again = frame_of(db.context, snapshot, by_places=True)
        assert seen(first) == seen(again) == expected
        assert BY_PLACE not in first._jdf.queryExecution().toString()
        assert BY_PLACE in again._jdf.queryExecution().toString()
        assert frame_of(db.context, snapshot) is again
        found = db.sql("SELECT count(*) AS c, sum(n) AS t FROM t WHERE f > 1").rows()
        above = [n for (f, _), n in rows.items() if f > 1 or f != f]
        assert found == [(len(above), sum(above))]
        places = replaced_places(db.context.storage, db.context.settings, snapshot)
        assert places is not None
        assert len(set(places.to_pylist())) == len({*keys[::2], *keys[::3], keys[5]}), "each replaced row once"
