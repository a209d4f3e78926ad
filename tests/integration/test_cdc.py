"""Change streams on real files: one stream or all of them, across splits and merges, each change once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.model.tablets import TokenRange
from ebla.source.data_source import EblaDataSource
from ebla.source.stream import EblaStreamReader
from ebla.values.token import token_of
from support.warehouse import connect

QUIET: dict[str, Any] = {"auto_refresh": False, "auto_compact": False, "tablets": 2}
Row = dict[str, Any]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", **QUIET) as database:
        prepare(database)
        yield database


def prepare(db: ebla.Database) -> None:
    """A table that is written to before, between and after a split and a merge."""
    db.sql("CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id))")
    for tablets in (4, 2):
        change(db, tablets)
        request = db.sql(f"ALTER TABLE t SET (tablets = {tablets})").rows()[0][0]
        db.sql(f"WAIT FOR REQUEST {request}")
    change(db, 9)


def change(db: ebla.Database, seed: int) -> None:
    table = db.table("t")
    table.upsert([{"id": i, "n": i * seed} for i in range(seed, seed + 30)])
    table.delete([{"id": i} for i in range(seed + 5, seed + 30, 4)])
    table.upsert([{"id": i, "n": -i} for i in range(0, 40, 7)])


def streams(db: ebla.Database) -> list[list[tuple[str, TokenRange]]]:
    """The streams of each generation, in order."""
    generations = db.sql("SELECT generation_id FROM system.cdc_generations ORDER BY begin_version").rows()
    found = db.sql("SELECT generation_id, stream_id, token_min, token_max FROM system.cdc_streams").rows()
    return [
        [(stream, TokenRange(low, high)) for generation, stream, low, high in found if generation == wanted]
        for (wanted,) in generations
    ]


def replay(changes: list[Row], rows: dict[int, Row]) -> None:
    """Apply changes to a table; each must fit what is there."""
    for one in sorted(changes, key=lambda change: change["_commit_version"]):
        row = {name: value for name, value in one.items() if not name.startswith("_")}
        match one["_change_type"]:
            case "insert":
                assert row["id"] not in rows, f"inserted twice: {one}"
                rows[row["id"]] = row
            case "update_postimage":
                assert row["id"] in rows, f"updated, but not there: {one}"
                rows[row["id"]] = row
            case "delete":
                assert rows.pop(row["id"], None) == row, f"deleted, but not there: {one}"


def stored(db: ebla.Database) -> dict[int, Row]:
    return {row["id"]: row for row in read(db)}


def follow(db: ebla.Database, **options: str) -> list[Row]:
    """What Spark would get of a streaming query that runs until it has all, batch by batch."""
    source = EblaDataSource({"url": str(db.context.catalog.where), "table": "t", **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, EblaStreamReader)
    found: list[Row] = []
    try:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
            for partition in reader.partitions(start, end):
                for batch in reader.read(partition):
                    found += batch.to_pylist()
            reader.commit(end)
            start = end
    finally:
        reader.stop()
    return found


def read(db: ebla.Database, **options: str) -> list[Row]:
    source = EblaDataSource({"url": str(db.context.catalog.where), "table": "t", **options})
    reader: Any = source.reader(source.schema())
    return [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]


def test_the_streaming_source_follows_the_streams_of_all_generations(db: ebla.Database) -> None:
    rows: dict[int, Row] = {}
    net: dict[int, Row] = {}
    for stream, tokens in (one for generation in streams(db) for one in generation):
        changes = follow(db, stream=stream, readChangeFeed="true", maxVersionsPerBatch="3")
        for one in changes:
            assert tokens.first <= token_of([one["id"]], ["bigint"]) <= tokens.last
        replay(changes, rows)
        replay(read(db, since="0", stream=stream), net)
    assert rows == net == stored(db)


def test_the_streaming_source_follows_everything_across_generations(db: ebla.Database) -> None:
    rows: dict[int, Row] = {}
    replay(follow(db, startingVersion="1", maxVersionsPerBatch="2"), rows)
    assert rows == stored(db)


def test_a_stream_that_is_not_one_of_the_table_is_refused(db: ebla.Database) -> None:
    with pytest.raises(ebla.EblaError, match="t: expected one of its change streams, found 'x'"):
        follow(db, stream="x", readChangeFeed="true")
    with pytest.raises(ebla.EblaError, match="option stream: expected a read of changes, found none"):
        read(db, stream="x")


def test_a_truncation_is_part_of_every_stream(db: ebla.Database) -> None:
    before = stored(db).keys()
    db.sql("TRUNCATE TABLE t")
    found = [row["id"] for stream, _ in streams(db)[-1] for row in read(db, since=str(db.version - 1), stream=stream)]
    assert sorted(found) == sorted(before)


@pytest.mark.spark
def test_the_streams_of_all_generations_have_each_change_once_in_frames(spark: SparkSession, tmp_path: Path) -> None:
    with connect(tmp_path / "w", spark, **QUIET) as db:
        prepare(db)
        found = streams(db)
        assert [len(generation) for generation in found] == [2, 4, 2]
        rows: dict[int, Row] = {}
        for stream, tokens in (one for generation in found for one in generation):
            changes = db.table("t").changes(0, stream=stream).toArrow().to_pylist()
            for one in changes:
                assert tokens.first <= token_of([one["id"]], ["bigint"]) <= tokens.last
            replay(changes, rows)
        assert rows == stored(db)
        assert db.table("t").changes(db.version, stream=found[-1][0][0]).count() == 0
        with pytest.raises(ebla.EblaError, match="t: expected one of its change streams, found"):
            db.table("t").changes(0, stream="x")
