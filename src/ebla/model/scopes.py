"""Scopes: what exclusive decisions are kept apart by.

Theory of operation. A decision on the schema or the topology is made from what was read, and holds as long as no other
such decision has changed that. It names the scopes that it was made from, its *guards*; the commit is refused if
another exclusive commit has moved one of them since. What a commit moves follows from its updates
(`ebla.catalog.guards`). So two decisions in different scopes do not conflict: a column of one table, an index of
another, a node that joins.

A tablet lies among the tablets of its relation, these and the relation in `DROPPED`, and everything in `EVERYTHING`:
what moves the wider scope has moved the narrower one. A decision that names no guards is guarded by `EVERYTHING`, and
then any exclusive commit is in its way but one that moves stages of tablets alone.

What a relation is and where its tablets lie are two scopes, so that a stage of a tablet and a new column do not meet.
What moves the tablets moves the relation too. These must meet:

- two steps of one tablet;
- a step of a tablet, behind a commit that drops the relation or changes its tablets, their copies or their nodes;
- a decision that was made from where tablets lie (a new index, a new view, its tasks), behind the beginning or the end
  of a transition.

The stage of a tablet changes no column, no option and no definition, and a step is made from none. Whether the new
replicas have all runs, those of an index that was made meanwhile too, its commit finds out itself.
"""

from __future__ import annotations

from typing import NewType

from ebla.base.ids import RelationId, TabletId

Scope = NewType("Scope", str)

EVERYTHING = Scope("everything")
SCHEMA = Scope("schema")
"""Which relations there are, and their names."""
TOPOLOGY = Scope("topology")
"""Nodes."""
HANDLERS = Scope("handlers")
ACCESS = Scope("access")
"""Users and what they may do."""
DROPPED = Scope("dropped")
"""Relations that were dropped so long ago that each has no guard of its own any more."""


def of_relation(relation: RelationId) -> Scope:
    """The relation itself, its columns and options, its indexes, and which views read it."""
    return Scope(f"relation/{relation}")


def of_tablets(relation: RelationId) -> Scope:
    """How many tablets a relation has, how many copies of them, and where they lie."""
    return Scope(f"relation/{relation}/tablets")


def of_tablet(relation: RelationId, tablet: TabletId) -> Scope:
    """The stage of a tablet in transition."""
    return Scope(f"relation/{relation}/tablet/{tablet}")


def is_of_tablet(scope: Scope) -> bool:
    return "/tablet/" in scope


def around(scope: Scope) -> frozenset[Scope]:
    """A scope, and those that it lies in."""
    relation = relation_of(scope)
    if relation is None:
        return frozenset((scope, EVERYTHING))
    wider = (of_tablets(relation),) if is_of_tablet(scope) else ()
    return frozenset((scope, *wider, DROPPED, EVERYTHING))


def relation_of(scope: Scope) -> RelationId | None:
    """The relation that a scope lies in, or is."""
    kind, _, rest = scope.partition("/")
    return RelationId(int(rest.partition("/")[0])) if kind == "relation" else None
