"""The last commits of this process, and the relations whose manifests they changed.

What was read of a relation holds until a commit changes it. Between the version at which it was read and the newest one
lie commits of this process, which are here, and of others, which are not. So a reader knows without a statement that
what it has is still right, if all commits between are here and none of them changed the relation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebla.base import lazy
from ebla.base.ids import RelationId, Version

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")

KEPT_MAX = 1024


def manifests_changed(updates: Sequence[c.Update]) -> frozenset[RelationId] | None:
    """The relations whose runs or folds these updates change; `None` if the updates do not say which."""
    found: set[RelationId] = set()
    for update in updates:
        match update:
            case c.AddRuns(runs=runs):
                found |= {run.relation for run in runs}
            case c.AddCopies(relation=relation) | c.EndRuns(relation=relation) | c.SetCutoff(relation=relation):
                found.add(relation)
            case c.EndTransaction() | c.SetProgress() | c.OpenSession() | c.CloseSession():
                pass
            case c.LogDictionaryChanges() | c.ForgetDictionaryChanges():
                pass
            case c.CreateTasks() | c.AbortTasks() | c.FinishTasks() | c.RemoveTasks() | c.CoverSegment():
                pass
            case _:
                return None
    return frozenset(found)


class OwnCommits:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._changed: OrderedDict[Version, frozenset[RelationId]] = OrderedDict()
        self._lock = threading.Lock()
        self.newest = Version(0)
        """The last of them, whatever it changed."""

    def note(self, version: Version, decision: c.Decision | None) -> None:
        """This process has committed a decision."""
        changed = None if decision is None else manifests_changed(decision.updates)
        with self._lock:
            self.newest = max(self.newest, version)
            if changed is None:
                return
            self._changed[version] = changed
            if len(self._changed) > KEPT_MAX:
                self._changed.popitem(last=False)

    def changed(self, since: Version, until: Version) -> frozenset[RelationId] | None:
        """The relations whose manifests changed in `(since, until]`; `None` if not all of the commits are here."""
        if not 0 <= until - since <= KEPT_MAX:
            return None
        found: set[RelationId] = set()
        for version in range(since + 1, until + 1):
            changed = self._changed.get(Version(version))
            if changed is None:
                return None
            found |= changed
        return frozenset(found)
