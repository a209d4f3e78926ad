"""How far a view that is being built in chunks is covered, and at which versions its segments stand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ebla.base.ids import RelationId, Version
from ebla.catalog import build_tasks, reads
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.chunks import Covered, Stretch, covers, position_of, spans
from ebla.model.relation import Relation
from ebla.model.tablets import TokenRange
from ebla.relations.views import View
from ebla.values import token, types

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStanding:
    """What is covered of a view, and whether an epoch has anything to do with it."""

    view: RelationId
    covered: Covered
    complete: bool
    """Whether all tokens are covered."""
    since: tuple[Version, ...]
    """The versions at which segments stand, each as the newest of those that no write of an input tells apart."""
    level: bool
    """Whether all of them stand where epochs have brought the view."""
    written: bool
    """Whether an input was written behind one of them."""

    @property
    def due(self) -> bool:
        """Changes are applied as they come; without any, versions are brought together once everything is covered."""
        return bool(self.since) and (self.written or (self.complete and not self.level))

    def inside(self, values: pa.Table, base: Relation, before: Version, since: Version) -> pa.Table:
        """The keys of the base that lie in a segment of some versions."""
        if values.num_rows == 0:
            return values
        names = values.schema.names
        keys = values.cast(
            pa.schema([pa.field(n, types.to_arrow(k.type)) for n, k in zip(names, base.key, strict=True)])
        )
        tokens = token.tokens(keys, names)
        ranges = sorted(self.covered)
        kept = [self._stands_at(ranges, int(one), before, since) for one in tokens]
        return keys.filter(pa.array(np.array(kept, dtype=bool)))

    def _stands_at(self, ranges: Sequence[TokenRange], one: int, before: Version, since: Version) -> bool:
        at = bisect_right(ranges, one, key=lambda tokens: tokens.first) - 1
        if at < 0 or ranges[at].last < one:
            return False
        found = sg.covering(self.covered[ranges[at]], position_of(one))
        return found is not None and before < found.since <= since

    def older(self, until: Version) -> list[Stretch]:
        """The segments that stand at a version before."""
        stretches = []
        for tokens, segments in self.covered.items():
            after: str | None = None
            for segment in segments:
                if segment.since < until:
                    stretches.append(Stretch(tokens=tokens, after=after, up_to=segment.up_to, rows=segment.rows))
                after = segment.up_to
        return stretches

    def spans_older(self, until: Version) -> list[TokenRange]:
        """The tokens of those segments."""
        return spans(self.older(until))

    def requires(self) -> list[c.Requirement]:
        """What a commit requires that moves the segments."""
        return [c.SegmentsBegin(view=self.view, tokens=t, segments=seen) for t, seen in self.covered.items()]

    def updates(self, until: Version) -> list[c.Update]:
        """All segments at the version."""
        return [
            c.ReplaceSegments(view=self.view, tokens=t, seen=len(seen), segments=sg.advance(seen, until))
            for t, seen in self.covered.items()
        ]


def standing(
    connection: Connection, view: View, base: Relation, relations: Mapping[str, Relation], until: Version
) -> ViewStanding:
    covered = build_tasks.segments(connection, view.relation.id)
    versions = sorted({s.since for segments in covered.values() for s in segments})
    since: list[Version] = []
    for version in versions:
        if since and not written_between(connection, relations, since[-1], version):
            since.pop()
        since.append(version)
    applied = None if view.reached is None else view.reached.applied_version
    return ViewStanding(
        view=view.relation.id,
        covered=covered,
        complete=covers(covered),
        since=tuple(since),
        level=versions == [applied],
        written=bool(since) and written_between(connection, relations, since[0], until),
    )


def written_between(connection: Connection, relations: Mapping[str, Relation], since: Version, until: Version) -> bool:
    """Whether an input may have changed. Below an input's horizon the manifest has forgotten whether it has."""
    return since < until and any(_may_be_written(connection, r, since, until) for r in relations.values())


def _may_be_written(connection: Connection, relation: Relation, since: Version, until: Version) -> bool:
    first = reads.first_write_after(connection, relation.id, since)
    return since < reads.horizon(connection, relation) if first is None else first <= until
