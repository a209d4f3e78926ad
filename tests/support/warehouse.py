"""Small warehouses for tests: open one, look at its rows and files, and show that a refused request changed nothing."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

import ebla
from ebla.base.ids import NodeId, TransactionId
from ebla.base.services import Scheduler
from ebla.catalog import reads, topology
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.model.relation import Run
from ebla.storage.files import MARKER
from support.catalogs import dump

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_US = 3_600_000_000
# What a request that fails may leave: the row of its aborted transaction, its number, pins, and why it failed. The
# process has a row.
_TRACES = ("transactions", "counters", "pins", "processes", "troubles", "mv_runners", "mv_runner_jobs", "mv_commands")


def connect(where: Path | str, spark: SparkSession | None = None, **settings: Any) -> ebla.Database:
    """A warehouse that does nothing by itself and does not wait for the disk."""
    return ebla.connect(os.fspath(where), spark, **{"auto_compact": False, "fsync": False, "tablets": 4, **settings})


def tuned(db: ebla.Database, **settings: Any) -> ebla.Database:
    """The same warehouse with some settings of its own; Spark and all that is kept in memory are shared."""
    return ebla.Database(replace(db.context.tuned(**settings), services=Scheduler()))


# ---- rows -----------------------------------------------------------------------------------------------


def rows(db: ebla.Database, text: str, **parameters: object) -> list[tuple[Any, ...]]:
    """The rows of a query, or of a table if only its name is given, sorted."""
    query = text if " " in text else f"SELECT * FROM {text}"
    found = db.sql(query, **parameters).rows()
    try:
        return sorted(found)
    except TypeError:  # NULLs, maps
        return sorted(found, key=repr)


def shown(db: ebla.Database, relation: str) -> Counter[tuple[Any, ...]]:
    """The rows of a relation as a bag, read without Spark."""
    found = db.query(relation, limit=10_000).rows()
    assert len(found) < 10_000
    return Counter(found)


# ---- files ----------------------------------------------------------------------------------------------

Files = set[tuple[NodeId, str]]


def stored(db: ebla.Database) -> Files:
    """Everything that lies under the roots of the warehouse's nodes, but for their markers and relations' folders."""
    found: Files = set()
    for node, root in db.context.roots().items():
        found |= {(node, path) for path, _, folder in root.listing() if not (folder and "/" not in path)}
    return {(node, path) for node, path in found if path != MARKER}


def named(db: ebla.Database) -> Files:
    """Every file that the manifest names."""
    with db.context.catalog.reading() as connection:
        return {(node, path) for node in topology.members(connection) for path in reads.named_paths(connection, node)}


def live_runs(db: ebla.Database, table: str, version: int | None = None) -> list[Run]:
    with db.context.catalog.reading() as connection:
        found = reads.snapshot(connection, reads.relation(connection, table), version)  # type: ignore[arg-type]
    return [*found.level1, *found.level0]


def host(db: ebla.Database, name: str) -> NodeId:
    """The host id of a node."""
    return db.context.catalog.read(lambda connection: topology.host_id(connection, name))


def names_of(db: ebla.Database, hosts: Iterable[str]) -> set[str]:
    """The names of nodes."""
    members = db.context.catalog.read(topology.members)
    return {members[NodeId(host)].name for host in hosts}


def file_of(db: ebla.Database, run: Run, node: str | None = None) -> Path:
    return Path(db.context.roots()[NodeId(node or run.nodes[0])].full(run.path))


def damage(file: Path) -> None:
    """Change one bit of a value and keep everything else, as a bad disk would."""
    with pq.ParquetFile(file) as parquet:
        column = parquet.metadata.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(file.read_bytes())
    content[start + column.total_compressed_size - 1] ^= 1
    file.write_bytes(content)


# ---- transactions ---------------------------------------------------------------------------------------


def open_transactions(db: ebla.Database) -> set[TransactionId]:
    with db.context.catalog.reading() as connection:
        return tx.open_transactions(connection)


def begin(db: ebla.Database, table: str, reason: str = "test") -> tx.Transaction:
    """A transaction that another process has open."""
    with db.context.catalog.reading() as connection:
        relation = reads.relation(connection, table)
    return tx.begin(db.context.catalog, relation, node=db.context.node, holder="test", reason=reason, lease_us=HOUR_US)


def later(db: ebla.Database, hours: float = 24) -> None:
    """Let time pass for the catalog: every lease runs out."""
    before = db.context.catalog.clock
    db.context.catalog.clock = lambda: before() + int(hours * HOUR_US)


def pins(db: ebla.Database) -> list[int]:
    db.pins.tidy()
    with db.context.catalog.reading() as connection:
        return sorted(connection.execute(select(s.pins.c.version)).scalars())


def eventually(condition: Callable[[], bool], seconds: float = 150) -> None:
    """Wait for a condition. The limit only ends a test that hangs, before pytest does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


# ---- errors ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def refused(
    db: ebla.Database, kind: type[ebla.EblaError], *parts: str
) -> Iterator[pytest.ExceptionInfo[ebla.EblaError]]:
    """The block raises this error, its message holds these parts, and catalog and files are as before."""
    with unchanged(db), pytest.raises(kind) as caught:
        yield caught
    message = str(caught.value)
    assert type(caught.value) is kind, f"expected {kind.__name__}, found {type(caught.value).__name__}: {message}"
    missing = [part for part in parts if part not in message]
    assert not missing, f"expected {missing} in: {message}"


@contextlib.contextmanager
def unchanged(db: ebla.Database) -> Iterator[None]:
    """Catalog and files are after the block as before, and nothing is left open."""
    before, pinned = _state(db), pins(db)
    yield
    after = _state(db)
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, f"expected catalog and files as before, found changed: {changed}"
    assert not open_transactions(db), "expected no open transaction"
    assert pins(db) == pinned, "expected the pins from before"


def _state(db: ebla.Database) -> dict[str, object]:
    tables = dump(db.context.catalog, without=_TRACES)
    held = [row[:-1] for row in tables[s.leases.name]]  # until when they last is renewed by time alone
    return {**tables, s.leases.name: held, "version": db.version, "files": stored(db)}
