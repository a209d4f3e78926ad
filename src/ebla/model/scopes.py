"""Scopes: what exclusive decisions are kept apart by.

Theory of operation. A decision on the schema or the topology is made from what was read, and holds as long as no other
such decision has changed that. It names the scopes that it was made from, its *guards*; the commit is refused if
another exclusive commit has moved one of them since. What a commit moves follows from its updates
(`ebla.catalog.guards`). So two decisions in different scopes do not conflict: a column of one table, an index of
another, a node that joins.

A tablet lies in its relation, a relation in `DROPPED`, and everything in `EVERYTHING`: what moves the wider scope has
moved the narrower one. A decision that names no guards is guarded by `EVERYTHING`, and then any exclusive commit is in
its way.
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


def of_tablet(relation: RelationId, tablet: TabletId) -> Scope:
    return Scope(f"relation/{relation}/tablet/{tablet}")


def around(scope: Scope) -> frozenset[Scope]:
    """A scope, and those that it lies in."""
    if relation_of(scope) is None:
        return frozenset((scope, EVERYTHING))
    return frozenset((scope, Scope(scope.partition("/tablet/")[0]), DROPPED, EVERYTHING))


def relation_of(scope: Scope) -> RelationId | None:
    """The relation that a scope lies in, or is."""
    kind, _, rest = scope.partition("/")
    return RelationId(int(rest.partition("/")[0])) if kind == "relation" else None
