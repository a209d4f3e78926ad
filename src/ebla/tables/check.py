"""The files of a table, compared with what the catalog says about them; and mended from sound copies.

Every copy of every run is read to its end, with the checksums of its pages. A run without a sound copy cannot be mended
here, and says which tablets are concerned.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ebla.catalog import reads
from ebla.errors import CorruptRunError
from ebla.ids import NodeId, Version
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.storage.model import Relation, Run
from ebla.tables.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What was found on disk. A copy is missing, or damaged: unreadable, or not what the catalog says."""

    name: str
    version: Version
    runs: int
    copies: int
    rows: int
    missing: int
    damaged: int
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
                "sample_percent": [self.sample_percent],
                "repaired": [self.repaired],
            }
        )


def check(context: Context, name: str, percent: float | None = None) -> Stored:
    return _stored(context, name, percent, mend=False)


def repair(context: Context, name: str) -> Stored:
    """Put a sound copy where one is missing or damaged."""
    return _stored(context, name, None, mend=True)


def _stored(context: Context, name: str, percent: float | None, *, mend: bool) -> Stored:
    with context.catalog.reading() as connection:
        relation = reads.relation(connection, name)
        snapshot = reads.snapshot(connection, relation)
    roots = context.roots()
    runs = [run for run in (*snapshot.level1, *snapshot.level0) if _chosen(run, percent)]
    found = rf.in_threads(lambda run: _problems(roots, run, relation), runs)
    if mend:
        for run, problems in zip(runs, found, strict=True):
            _mend(roots, run, problems, relation)
    every = [problem for problems in found for problem in problems.values()]
    return Stored(
        name=relation.name,
        version=snapshot.version,
        runs=len(runs),
        copies=sum(len(run.nodes) for run in runs),
        rows=sum(run.rows for run in runs),
        missing=every.count("missing"),
        damaged=every.count("damaged"),
        sample_percent=100.0 if percent is None else percent,
        repaired=mend,
    )


def _chosen(run: Run, percent: float | None) -> bool:
    return percent is None or zlib.crc32(run.path.encode()) % 10_000 < percent * 100


def _problems(roots: Mapping[NodeId, Root], run: Run, relation: Relation) -> dict[NodeId, str]:
    """What is wrong with which copies of a run."""
    found = {}
    for node in run.nodes:
        root = roots[node]
        if root.size(run.path) is None:
            found[node] = "missing"
        elif rf.unreadable(root, run) is not None or _other_rows(root, run, relation):
            found[node] = "damaged"
    return found


def _other_rows(root: Root, run: Run, relation: Relation) -> bool:
    """Whether a readable file has not the rows that the catalog says."""
    try:
        if run.level == 0:
            return bool(root.open_parquet(run.path).metadata.num_rows != run.rows)
        facts = rf.inspect_sorted(root, run.path, relation, unique=not relation.keyless)
    except (OSError, pa.ArrowException, CorruptRunError):
        return True
    return (facts.rows, facts.key_min, facts.key_max) != (run.rows, run.key_min, run.key_max)


def _mend(roots: Mapping[NodeId, Root], run: Run, problems: Mapping[NodeId, str], relation: Relation) -> None:
    sound: Sequence[NodeId] = [node for node in run.nodes if node not in problems]
    if problems and not sound:
        raise CorruptRunError(
            f"{relation.name}: expected a sound copy of {run.path}, found every one of {len(run.nodes)} missing or "
            "damaged; bring the file back from a backup, or delete and load these rows again"
        )
    for node in problems:
        roots[node].remove(run.path)
        roots[sound[0]].copy_to(roots[node], run.path)
