"""How far one build is, measured by the rows that it has read and those that its base has."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from ebla.catalog import build_tasks, reads
from ebla.catalog.troubles import Trouble
from ebla.model import chunks
from ebla.model import segments as sg
from ebla.model.progress import BuildFigures, Progress, progress
from ebla.model.relation import Relation
from ebla.model.tablets import token_ranges
from ebla.model.tasks import Build
from ebla.relations import failed_builds as failed


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildProgress:
    """One view or index, built or being built."""

    name: str
    base: str | None
    progress: Progress
    rows_expected: int | None = None
    build: Build | None = None
    deferred: bool = False
    """Whether it waits for `BUILD INDEXES`."""
    troubled: bool = False
    """Whether it waits because something went wrong, and is tried again."""
    failure: Trouble | None = None
    """What ended the build, or keeps it until a row is mended."""

    def row(self) -> dict[str, object]:
        at = self.progress
        return {
            "name": self.name,
            "base": self.base,
            "phase": at.phase.value,
            "percent": at.percent,
            "rows": at.rows,
            "rows_expected": self.rows_expected,
            "tablets": at.tablets,
            "rows_per_s": None if at.rows_per_s is None else round(at.rows_per_s, 1),
            "eta_s": None if at.eta_s is None else round(at.eta_s, 1),
            "rows_per_minute": None if self.build is None else self.build.rows_per_minute,
            "chunk_rows": None if self.build is None else self.build.chunk_rows,
            "concurrency": None if self.build is None else self.build.concurrency,
            "detail": at.detail,
            "culprit": None if self.failure is None or self.failure.culprit is None else str(self.failure.culprit),
            "failed_at": None if self.failure is None else failed.failed_at(self.failure),
        }


def measured(
    connection: Connection,
    relation: Relation,
    build: Build,
    covered: chunks.Covered,
    now: int,
    level: bool,
    waiting: str | None,
    *,
    failed: str | None = None,
) -> BuildProgress:
    base = reads.relation_by_id(connection, build.base)
    tablets = 1 if base is None else base.tablets
    expected = None if base is None else reads.snapshot(connection, base).rows_at_most
    read = sum(map(sg.rows, covered.values()))
    if base is not None and read:
        # By the tokens that are covered, not by today's rows: those grow while it is built, and progress would fall.
        expected = max(read, round(read / chunks.share(covered)))
    begun = bool(covered) or build_tasks.processing_base(connection) == build.base
    created = reads.committed_at(connection, [build.created]).get(build.created)
    figures = BuildFigures(
        tablets=tablets,
        tablets_covered=sum(chunks.covers(covered, tokens) for tokens in token_ranges(tablets)),
        rows_read=read,
        rows_expected=expected,
        applied=level,
        started_us=created if begun else None,
        now_us=now,
        waiting_for=waiting,
        failed=failed,
    )
    return BuildProgress(
        name=relation.name,
        base=None if base is None else base.name,
        progress=progress(figures),
        rows_expected=expected,
        build=build,
    )
