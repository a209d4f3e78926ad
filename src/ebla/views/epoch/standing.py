"""How far a view that is being built in chunks is covered, and at which versions its segments stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ebla.base.ids import RelationId, TabletId, Version
from ebla.catalog import building, reads
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.chunks import Stretch, position_of
from ebla.model.relation import Relation
from ebla.model.segments import Segments
from ebla.relations.views import View
from ebla.values import token, types

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is covered of a view, and whether an epoch has anything to do with it."""

    view: RelationId
    covered: Mapping[TabletId, Segments[str]]
    complete: bool
    """Whether every tablet is covered to its end."""
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
        """Those of some keys of the base that lie in a segment of these versions."""
        if values.num_rows == 0:
            return values
        names = values.schema.names
        keys = values.cast(
            pa.schema([pa.field(n, types.to_arrow(k.type)) for n, k in zip(names, base.key, strict=True)])
        )
        tokens = token.tokens(keys, names)
        tablets = token.tablets_of(tokens, base.tablets)
        kept = [
            self._stands_at(TabletId(int(tablet)), position_of(int(one)), before, since)
            for one, tablet in zip(tokens, tablets, strict=True)
        ]
        return keys.filter(pa.array(np.array(kept, dtype=bool)))

    def _stands_at(self, tablet: TabletId, position: str, before: Version, since: Version) -> bool:
        found = sg.covering(self.covered.get(tablet, ()), position)
        return found is not None and before < found.since <= since

    def older(self, until: Version) -> list[Stretch]:
        """The segments that stand at a version before."""
        stretches = []
        for tablet, segments in self.covered.items():
            after: str | None = None
            for segment in segments:
                if segment.since < until:
                    stretches.append(Stretch(tablet=tablet, after=after, up_to=segment.up_to, rows=segment.rows))
                after = segment.up_to
        return stretches

    def requires(self) -> list[c.Requirement]:
        """What a commit requires that moves the segments."""
        return [c.SegmentsBegin(view=self.view, tablet=t, segments=seen) for t, seen in self.covered.items()]

    def updates(self, until: Version) -> list[c.Update]:
        """All segments at the version."""
        return [
            c.ReplaceSegments(view=self.view, tablet=t, seen=len(seen), segments=sg.advance(seen, until))
            for t, seen in self.covered.items()
        ]


def standing(
    connection: Connection, view: View, base: Relation, relations: Mapping[str, Relation], until: Version
) -> Standing:
    covered = building.segments(connection, view.relation.id)
    versions = sorted({s.since for segments in covered.values() for s in segments})
    since: list[Version] = []
    for version in versions:
        if since and not written_between(connection, relations, since[-1], version):
            since.pop()
        since.append(version)
    complete = all(sg.is_covered(covered.get(TabletId(t), ())) for t in range(base.tablets))
    applied = None if view.reached is None else view.reached.applied_version
    return Standing(
        view=view.relation.id,
        covered=covered,
        complete=complete,
        since=tuple(since),
        level=versions == [applied],
        written=bool(since) and written_between(connection, relations, since[0], until),
    )


def written_between(connection: Connection, relations: Mapping[str, Relation], since: Version, until: Version) -> bool:
    return any(
        first is not None and first <= until
        for first in (reads.first_write_after(connection, r.id, since) for r in relations.values())
    )
