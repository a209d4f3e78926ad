"""For how long a replica that could not be made on a node is not tried there again.

A transition that goes back leaves its tablet as it was, so the next plan would begin the same move at once, for as long
as a disk is full. The process that leads counts for each tablet and node how often that happened in a row, and hands
the plan those that rest (`Topology.paused`). What it knows is lost with it: another leader begins to count anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ebla.base.backoff import Backoff
from ebla.base.ids import NodeId
from ebla.model import topology_changes as t
from ebla.model.lifecycle.tablet import goes_back
from ebla.model.topology import Tablet, Transition

BACKOFF = Backoff(first=1.0, most=300.0)
"""Seconds from the end of a transition that went back until the same one may begin."""

Try = tuple[Tablet, NodeId | None]
"""A tablet, and the node that it was to come to; none, where a replica was to be given up."""


class _Pause(NamedTuple):
    failures: int
    until_s: float


class Pauses:
    """What one process has seen go back."""

    def __init__(self, backoff: Backoff = BACKOFF) -> None:
        self.backoff = backoff
        self._of: dict[Try, _Pause] = {}

    def note(self, moving: Mapping[Tablet, Transition], updates: Iterable[object], now_s: float) -> None:
        """Note the transitions, of those that were under way, that a commit has ended."""
        for update in updates:
            if not isinstance(update, t.EndTransition) or update.tablet not in moving:
                continue
            pending = moving[update.tablet].pending
            which = update.tablet, None if pending is None else pending.host
            before = self._of.pop(which, None)
            if goes_back(update.stage):
                failures = 1 if before is None else before.failures + 1
                self._of[which] = _Pause(failures, now_s + self.backoff.after(failures))

    def at(self, now_s: float) -> dict[Tablet, frozenset[NodeId | None]]:
        """The nodes that are not to be tried now, of each tablet. What has rested for long is forgotten."""
        self._of = {which: one for which, one in self._of.items() if now_s < one.until_s + self.backoff.most}
        found: defaultdict[Tablet, set[NodeId | None]] = defaultdict(set)
        for (tablet, node), one in self._of.items():
            if now_s < one.until_s:
                found[tablet].add(node)
        return {tablet: frozenset(nodes) for tablet, nodes in found.items()}
