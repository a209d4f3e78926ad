"""What views need is not pulled from under them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from ebla.catalog import reads
from ebla.errors import SnapshotError, UsageError
from ebla.storage.model import Kind, Relation
from ebla.views import definition
from ebla.views.nodes import NotUnderstood
from ebla.views.shape import understood


def refuse_if_read(connection: Connection, relation: Relation, what: str, columns: Sequence[str] = ()) -> None:
    """Refuse a change of a relation, or of some of its columns, that views need, naming them."""
    readers = definition.readers_of(connection, relation)
    if columns:
        readers = [v for v in readers if any(_uses(connection, v, relation, name) for name in columns)]
    if readers:
        thing = relation.name if not columns else f"{relation.name} ({', '.join(columns)})"
        names = ", ".join(v.relation.name for v in readers)
        raise UsageError(f"{thing}: expected that no view needs it, found {names}; drop them first, then {what}")


def _uses(connection: Connection, view: definition.View, relation: Relation, column: str) -> bool:
    relations = {n: reads.relation(connection, n) for n in view.inputs}
    try:
        used = understood(view.query, relations).used
    except NotUnderstood:
        return True
    return column.lower() in used.get(relation.name.lower(), frozenset())


def require_built(connection: Connection, relation: Relation) -> None:
    """A view whose first epoch has not ended has no rows to show."""
    if relation.kind is not Kind.VIEW:
        return
    position = definition.of_relation(connection, relation).position
    if position is None:
        raise SnapshotError(
            f"view {relation.name}: expected it built, found it building; WAIT FOR {relation.name} returns when it is"
        )
    if not position.built:
        raise SnapshotError(
            f"view {relation.name}: expected it built, found that its build failed: {position.message}; "
            f"mend the rows, then FLUSH {relation.name}"
        )
