"""The files of a table, compared with what the catalog says about them; and mended from sound copies.

Every copy of every run is read to its end, with the checksums of its pages: some runs at a time, no faster than the
rate, and on Spark where they are many or large. The version with which it began is kept from vacuum meanwhile. A run
without a sound copy cannot be mended here: what can be is, and then the error names its files.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.ids import NodeId, Version
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import CorruptRunError
from ebla.model.relation import Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.spark import write as swrite
from ebla.storage import runs as rf
from ebla.storage.copying import Copier, Lack
from ebla.storage.files import Root
from ebla.tables.parts import CheckSpeed, paced, stoppable
from ebla.tables.scans import Pins, at_version
from ebla.tables.transaction import begin_copies
from ebla.tables.write_access import WriteAccess
from ebla.values.bounds import key_json

HERE_RUNS_MAX = 1_000
HERE_BYTES_MAX = 256 * 2**20
"""More runs or bytes than this are read by Spark, less by threads of the driver."""
TASKS_MAX = 1_000
FILES_NAMED_MAX = 10
MISSING, DAMAGED = "missing", "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCheckResult:
    """What was found on disk. A copy is missing, or damaged: unreadable, or not what the catalog says."""

    name: str
    version: Version
    runs: int
    copies: int
    rows: int
    missing: int
    damaged: int
    files: tuple[str, ...] = ()
    """The copies that are missing or damaged, and which of the two; no more than a few."""
    sample_percent: float = 100.0
    repaired: bool = False

    def table(self) -> pa.Table:
        return pa.table(
            {
                "table": [self.name],
                "version": [int(self.version)],
                "runs": [self.runs],
                "copies": [self.copies],
                "rows": [self.rows],
                "missing": [self.missing],
                "damaged": [self.damaged],
                "files": pa.array([self.files], pa.list_(pa.string())),
                "sample_percent": [self.sample_percent],
                "repaired": [self.repaired],
            }
        )


def check_table(
    context: WriteAccess, pins: Pins, name: str, percent: float | None, pace: CheckSpeed
) -> TableCheckResult:
    return _stored(context, pins, name, percent, pace, mend=False)


def repair(context: WriteAccess, pins: Pins, name: str, pace: CheckSpeed) -> TableCheckResult:
    """Put a sound copy where one is missing or damaged."""
    return _stored(context, pins, name, None, pace, mend=True)


def _stored(
    context: WriteAccess, pins: Pins, name: str, percent: float | None, pace: CheckSpeed, *, mend: bool
) -> TableCheckResult:
    def read(connection: Connection, at: Version) -> Snapshot:
        return reads.snapshot(connection, reads.relation(connection, name), at)

    snapshot, holds = at_version(context.catalog, pins, None, f"check of {name}", read)
    relation = snapshot.relation
    runs = [run for run in (*snapshot.level1, *snapshot.level0) if _chosen(run, percent)]
    remote = {node for node, root in context.roots().items() if root.is_remote}
    look = _on_spark if is_large(runs) and not any(remote & set(run.nodes) for run in runs) else _here
    pieces = in_pieces(runs, pace.part_rows)
    every: Counter[str] = Counter()
    files: list[str] = []
    lost: list[Run] = []
    what = f"{'repairing' if mend else 'checking'} table {relation.name}"
    try:
        for number in paced(context.progress, what, [sum(map(_rows_read, piece)) for piece in pieces], pace):
            holds.append(pins.hold(snapshot.version, f"check of {name}"))  # the lease of a slow one is renewed
            found = look(context, relation, pieces[number])
            lacks: list[Lack] = []
            roots = context.roots()
            for run, problems in zip(pieces[number], found, strict=True):
                every.update(problems.values())
                files += [f"{roots[node].full(run.path)}: {problem}" for node, problem in problems.items()]
                sound = [node for node in run.nodes if node not in problems]
                lacks += [Lack(run.relation, run.path, run.bytes, node, sound) for node in problems if sound]
                lost += [] if sound else [run]
            if mend and lacks:
                _mend(context, relation, lacks)
    finally:
        for hold in holds:
            hold.release()
    if lost:
        raise _without_sound_copy(context.roots(), relation, lost)
    return TableCheckResult(
        name=relation.name,
        version=snapshot.version,
        runs=len(runs),
        copies=sum(len(run.nodes) for run in runs),
        rows=sum(run.rows for run in runs),
        missing=every[MISSING],
        damaged=every[DAMAGED],
        files=tuple(files[:FILES_NAMED_MAX]),
        sample_percent=100.0 if percent is None else percent,
        repaired=mend,
    )


def is_large(runs: Sequence[Run]) -> bool:
    """Whether Spark reads these files; fewer are read before it has begun."""
    return len(runs) > HERE_RUNS_MAX or sum(run.bytes * len(run.nodes) for run in runs) > HERE_BYTES_MAX


def _rows_read(run: Run) -> int:
    return run.rows * len(run.nodes)


def in_pieces(runs: Sequence[Run], rows_max: int) -> list[list[Run]]:
    """Runs in the same order, together as long as no more rows than this are read; a larger run is by itself."""
    pieces: list[list[Run]] = []
    rows = 0
    for run in runs:
        rows += _rows_read(run)
        if not pieces or rows > rows_max:
            pieces.append([])
            rows = _rows_read(run)
        pieces[-1].append(run)
    return pieces


def _here(context: WriteAccess, relation: Relation, runs: Sequence[Run]) -> list[dict[NodeId, str]]:
    roots = context.roots()
    return rf.in_threads(lambda run: _problems(roots, run, relation), runs)


def _on_spark(context: WriteAccess, relation: Relation, runs: Sequence[Run]) -> list[dict[NodeId, str]]:
    """Plan: one job, a task for each run; the rows stay where they are read, and what is wrong comes back."""
    task = _RunReader({node: root.location for node, root in context.roots().items()}, relation, runs)
    spark = context.writer
    found: list[dict[NodeId, str]] = [{} for _ in runs]
    with swrite.translated(relation.name), stoppable(spark):
        numbers = spark.range(0, len(runs), 1, min(len(runs), TASKS_MAX))
        for row in numbers.mapInArrow(task, "run long, node string, problem string").collect():
            found[row.run][NodeId(row.node)] = row.problem
    return found


class _RunReader:
    """Reads the runs whose numbers come to it. Runs in Spark's Python workers."""

    def __init__(self, locations: Mapping[NodeId, str], relation: Relation, runs: Sequence[Run]) -> None:
        self.locations = dict(locations)
        self.relation = relation
        self.runs = list(runs)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        roots = {node: Root(location) for node, location in self.locations.items()}
        for batch in batches:
            found = [
                {"run": number, "node": str(node), "problem": problem}
                for number in batch.column(0).to_pylist()
                for node, problem in _problems(roots, self.runs[number], self.relation).items()
            ]
            if found:
                yield pa.RecordBatch.from_pylist(found)


def _chosen(run: Run, percent: float | None) -> bool:
    return percent is None or zlib.crc32(run.path.encode()) % 10_000 < percent * 100


def _problems(roots: Mapping[NodeId, Root], run: Run, relation: Relation) -> dict[NodeId, str]:
    """What is wrong with which copies of a run."""
    found = {}
    for node in run.nodes:
        root = roots[node]
        try:
            size = root.size(run.path)
            if size is not None:
                root.fetch_again(run.path)
        except OSError:
            found[node] = DAMAGED
            continue
        if size is None:
            found[node] = MISSING
        elif rf.unreadable(root, run) is not None or _other_rows(root, run, relation):
            found[node] = DAMAGED
    return found


def _other_rows(root: Root, run: Run, relation: Relation) -> bool:
    """Whether a readable file has not the rows that the catalog says."""
    try:
        if run.level == 0:
            return bool(root.open_parquet(run.path).metadata.num_rows != run.rows)
        file = root.open_parquet(run.path)
        first, last = rf.sorted_ends(file, relation, unique=not relation.keyless)
    except (OSError, pa.ArrowException, CorruptRunError):
        return True
    facts = rf.bounded(file.metadata.num_rows, run.bytes, relation, first, last)
    whole = (key_json(first or []), key_json(last or []))  # as older releases kept them
    stated = (run.key_min, run.key_max)
    return facts.rows != run.rows or stated not in ((facts.key_min, facts.key_max), whole)


def _mend(context: WriteAccess, relation: Relation, lacks: Sequence[Lack]) -> None:
    transaction = begin_copies(context, relation)
    try:
        with context.kept_alive(transaction.id):
            Copier(context.nodes.files(), transaction.id).require(lacks)
    finally:
        tx.abort(context.catalog, transaction.id)  # nothing is to be committed: the manifest has these copies


def _without_sound_copy(roots: Mapping[NodeId, Root], relation: Relation, lost: Sequence[Run]) -> CorruptRunError:
    named = [roots[node].full(run.path) for run in lost for node in run.nodes]
    more = "" if len(named) <= FILES_NAMED_MAX else f" and {len(named) - FILES_NAMED_MAX} more"
    return CorruptRunError(
        f"{relation.name}: expected a sound copy of every run, found every copy of {len(lost)} missing or damaged: "
        f"{', '.join(named[:FILES_NAMED_MAX])}{more}; bring the files back from a backup, or delete and load these "
        "rows again"
    )
