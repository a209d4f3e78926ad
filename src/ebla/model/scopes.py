"""Scopes: what exclusive decisions are kept apart by.

Theory of operation. A decision on the schema or the topology is made from what was read, and holds as long as no other
such decision has changed that. It names the scopes that it was made from, its *guards*; the commit is refused if
another exclusive commit has moved one of them since. What a commit moves follows from its updates
(`ebla.catalog.guards`). So two decisions in different scopes do not conflict: a column of one table, an index of
another, a node that joins.

A tablet lies in its relation, and everything in `EVERYTHING`: what moves the wider scope has moved the narrower one. A
decision that names no guards is guarded by `EVERYTHING`, and then any exclusive commit is in its way.
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


def of_relation(relation: RelationId) -> Scope:
    """The relation itself, its columns and options, its indexes, and which views read it."""
    return Scope(f"relation/{relation}")


def of_tablet(relation: RelationId, tablet: TabletId) -> Scope:
    return Scope(f"relation/{relation}/tablet/{tablet}")


def around(scope: Scope) -> frozenset[Scope]:
    """A scope, and those that it lies in."""
    relation, tablet, _ = scope.partition("/tablet/")
    return frozenset((scope, Scope(relation), EVERYTHING)) if tablet else frozenset((scope, EVERYTHING))
