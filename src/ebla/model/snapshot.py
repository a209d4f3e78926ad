"""A snapshot: the runs to read for some tablets of a relation at one version, and how level 0 lies over level 1.

Compaction folds level 0 into level 1 tablet by tablet, but one level 0 run may span tablets. Each fold therefore says
up to which version level 0 is contained in the tablet's level 1: the tablet's *cutoff*. A level 0 row counts for its
tablet only if its run began after that cutoff. A fold names tokens: it holds for every tablet inside them, also where
tablets were split since.

The tablets of a snapshot are those of its version, and so are those of its relation. Level 1 runs lie in one of them
each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ebla.base.ids import NodeId, TabletId, Token, Version
from ebla.model.relation import SPANS_TABLETS, Relation, Run
from ebla.model.tablets import TokenRange, joined, tablet_of, tablets_around, tablets_over, token_range

BEGINNING = Version(0)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    relation: Relation
    version: Version
    tablets: tuple[TabletId, ...]
    """The tablets that are read, in order; all of them unless the reader asked for fewer."""
    level1: tuple[Run, ...]
    level0: tuple[Run, ...]
    """Oldest first. Every run overlaps a read tablet and began after that tablet's cutoff."""
    cutoffs: Mapping[TabletId, Version]
    roots: Mapping[NodeId, str]
    folded: tuple[Run, ...] = ()
    """Visible level 0 runs that count in no tablet any more, all of whose tablets are read. The next fold ends them."""

    @property
    def complete(self) -> bool:
        return len(self.tablets) == self.relation.tablets

    @cached_property
    def uniform_cutoff(self) -> bool:
        """True when no level 0 run is folded in one tablet and still counts in another one it spans."""
        if not self.level0 or not self.complete:
            return not self.level0
        oldest = self.level0[0].begin_version
        return all(self.cutoffs.get(t, BEGINNING) < oldest for t in self.tablets)

    def tokens_of(self, tablets: Iterable[TabletId]) -> list[TokenRange]:
        return [token_range(tablet, self.relation.tablets) for tablet in tablets]

    def is_just(self, tokens: Iterable[TokenRange]) -> bool:
        """Whether the tablets that are read have these tokens and no others."""
        return joined(tokens) == joined(self.tokens_of(self.tablets))

    def tablets_of(self, run: Run) -> tuple[TabletId, ...]:
        """The tablets whose rows would be missing if this run could not be read."""
        if run.tablet != SPANS_TABLETS:
            return (run.tablet,)
        span = span_of(run, self.relation.tablets)
        return tuple(t for t in self.tablets if t in span and run.begin_version > self.cutoffs.get(t, BEGINNING))

    @property
    def rows_at_most(self) -> int:
        return sum(r.rows for r in self.level1) + sum(r.rows - r.tombstones for r in self.level0)


def cutoffs_of(folds: Iterable[tuple[TokenRange, Version]], tablets: int) -> dict[TabletId, Version]:
    """Up to which version level 0 is folded in each tablet of a map; nothing for a tablet that was never folded."""
    cutoffs: dict[TabletId, Version] = {}
    for tokens, cutoff in folds:
        for tablet in tablets_over(tokens, tablets):
            if tokens.holds(token_range(tablet, tablets)):
                cutoffs[tablet] = max(cutoff, cutoffs.get(tablet, BEGINNING))
    return cutoffs


def superseded(cutoffs: Mapping[TokenRange, Version], tablets: int) -> set[TokenRange]:
    """The folds that may be forgotten where no map has fewer tablets than these: others say at least as much.

    A fold counts for tablets that it holds. So one is superseded by one around it, and one of more tokens than a tablet
    has by those of its parts, if each still holds a tablet.
    """
    if len({tokens.width for tokens in cutoffs}) < 2:
        return set()
    inner = {
        tokens
        for tokens, cutoff in cutoffs.items()
        if any(cutoffs.get(one, BEGINNING) >= cutoff for one in tablets_around(tokens) if one != tokens)
    }
    left = {tokens: cutoff for tokens, cutoff in cutoffs.items() if tokens not in inner}
    width = token_range(0, tablets).width

    def in_parts(tokens: TokenRange, cutoff: Version) -> bool:
        if tokens.width <= width:
            return False
        middle = Token(tokens.first + tokens.width // 2)
        parts = TokenRange(tokens.first, Token(middle - 1)), TokenRange(middle, tokens.last)
        return all(left.get(part, BEGINNING) >= cutoff or in_parts(part, cutoff) for part in parts)

    return inner | {tokens for tokens, cutoff in left.items() if in_parts(tokens, cutoff)}


def span_of(run: Run, tablets: int) -> range:
    """The tablets, of a map with `tablets`, that the run's tokens lie in."""
    if run.tablet != SPANS_TABLETS:
        return range(run.tablet, run.tablet + 1)
    return range(tablet_of(run.token_min, tablets), tablet_of(run.token_max, tablets) + 1)


def assemble(
    relation: Relation,
    version: Version,
    runs: Iterable[Run],
    folds: Iterable[tuple[TokenRange, Version]],
    roots: Mapping[NodeId, str],
    tablets: Sequence[TabletId] | None = None,
) -> Snapshot:
    """Sort the visible runs of a relation into levels, leaving out level 0 that is folded everywhere it counts."""
    wanted = tuple(TabletId(t) for t in range(relation.tablets)) if tablets is None else tuple(sorted(set(tablets)))
    chosen = set(wanted)
    cutoffs = {t: cutoff for t, cutoff in cutoffs_of(folds, relation.tablets).items() if t in chosen}
    level1: list[Run] = []
    level0: list[Run] = []
    folded: list[Run] = []
    for run in runs:
        if run.level == 1:
            assert run.tablet != SPANS_TABLETS, f"expected level 1 run {run.id} in one tablet, found {run.tokens}"
            if run.tablet in chosen:
                level1.append(run)
            continue
        span = span_of(run, relation.tablets)
        read = wanted[bisect_left(wanted, span.start) : bisect_left(wanted, span.stop)]
        if any(run.begin_version > cutoffs.get(t, BEGINNING) for t in read):
            level0.append(run)
        elif len(read) == len(span):
            folded.append(run)
    return Snapshot(
        relation=relation,
        version=version,
        tablets=wanted,
        level1=tuple(sorted(level1, key=lambda r: (r.tablet, r.id))),
        level0=tuple(sorted(level0, key=lambda r: (r.begin_version, r.id))),
        cutoffs=cutoffs,
        roots=dict(roots),
        folded=tuple(folded),
    )
