"""What views need is not pulled from under them, and a statement is about a relation of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.base import lazy
from ebla.base.ids import RelationId
from ebla.catalog import build_tasks, reads
from ebla.catalog.store import now_us
from ebla.errors import SnapshotError, UsageError
from ebla.model.relation import Kind, Relation
from ebla.relations import handlers as stored
from ebla.relations import views as definition
from ebla.relations.readers import readers_of
from ebla.relations.views import REPLACEMENT, find_replacement
from ebla.sql.lex import name_text

if TYPE_CHECKING:
    from ebla.model import changes as c
    from ebla.relations import builds as build_progress
else:
    c = lazy.Module("ebla.model.changes")
    build_progress = lazy.Module("ebla.relations.builds")


def refuse_if_read(
    connection: Connection, relation: Relation, what: str, columns: Sequence[str] = (), *, can_cascade: bool = False
) -> None:
    """Refuse a change of a relation, or of some of its columns, that views need, naming them."""
    readers = _readers(connection, relation, columns)
    if readers:
        thing = relation.name if not columns else f"{relation.name} ({', '.join(columns)})"
        names = ", ".join(v.relation.name for v in readers)
        or_else = ", or add CASCADE to drop them, too" if can_cascade else ""
        raise UsageError(
            f"{thing}: expected that no view needs it, found {names}; drop them first, then {what}{or_else}"
        )


def _readers(connection: Connection, relation: Relation, columns: Sequence[str]) -> list[definition.View]:
    found = readers_of(connection, relation)
    if columns:
        found = [v for v in found if any(_uses(connection, v, relation, name) for name in columns)]
    return found


def needing(connection: Connection, relation: Relation, columns: Sequence[str] = ()) -> list[Relation]:
    """The views that need a relation, or some of its columns, at any distance."""
    found: dict[RelationId, Relation] = {}
    pending = [v.relation for v in _readers(connection, relation, columns)]
    while pending:
        one = pending.pop()
        if one.id not in found:
            found[one.id] = one
            pending += [v.relation for v in _readers(connection, one, ())]
    return sorted(found.values(), key=lambda r: r.name)


def dropping(
    connection: Connection, relation: Relation, columns: Sequence[str] = (), *, cascade: bool
) -> tuple[tuple[c.Update, ...], str]:
    """The updates that drop the views in the way, from their handlers too, and words for the reason.

    Without `cascade` a view in the way is an error. The relation itself is dropped as well unless only columns are.
    """
    if not cascade:
        refuse_if_read(connection, relation, "drop it", columns, can_cascade=True)
    views = needing(connection, relation, columns)
    gone = [*views, relation] if not columns else views
    beside = [definition.find_replacement(connection, r.name) for r in gone if r.kind is Kind.VIEW]
    gone += [one for one in beside if one is not None and one not in gone]
    updates = tuple(c.DropRelation(relation=r.id) for r in gone)
    words = f" and views {', '.join(v.name for v in views)}" if views else ""
    return (*updates, *stored.removal(connection, {r.id for r in gone})), words


def _uses(connection: Connection, view: definition.View, relation: Relation, column: str) -> bool:
    from ebla.algebra.nodes import NotUnderstood
    from ebla.algebra.shape import understood

    if view.damage is not None:
        return True
    relations = {n: reads.relation(connection, n) for n in view.inputs}
    try:
        used = understood(view.query, relations, view.settings).used
    except NotUnderstood:
        return True
    found = relation.column(column)
    return found is not None and found.name in used.get(relation.name.lower(), frozenset())


def require_built(connection: Connection, relation: Relation) -> None:
    """A view that is being built cannot be read: how far it is. An index has no rows of its own."""
    if relation.kind is Kind.INDEX:
        raise UsageError(
            f"{relation.name}: expected a table or a view, found an index; query what it indexes, or system.indexes"
        )
    if relation.kind is not Kind.VIEW:
        return
    view = definition.of_relation(connection, relation)
    position = view.position
    if position is None:
        at = build_progress.of_view(connection, view, build_tasks.builds(connection), now_us()).progress
        raise SnapshotError(
            f"view {relation.name}: expected it built, found it building: {build_progress.words(at)}; "
            f"WAIT FOR {relation.name} returns when it is"
        )
    if not position.built:
        raise SnapshotError(
            f"view {relation.name}: expected it built, found that its build failed: {position.message}; "
            f"mend the rows; then it goes on by itself, or at once with FLUSH {relation.name}"
        )


def refuse_if_replaced(connection: Connection, relation: Relation) -> None:
    """Refuse a new dependent of a view that is about to go, or to be renamed."""
    if relation.name.startswith(REPLACEMENT) or find_replacement(connection, relation.name) is not None:
        name = relation.name.removeprefix(REPLACEMENT)
        raise UsageError(
            f"view {name}: expected one that stays, found that it is being replaced; WAIT FOR {name_text(name)} first, "
            f"or CANCEL BUILD {name_text(name)}"
        )


def require_kind(relation: Relation, kind: Kind, verb: str) -> None:
    """Refuse a statement that is about another kind of relation, and say which one is about this."""
    if relation.kind is not kind:
        raise UsageError(
            f"{relation.name}: expected {kind.named}, found {relation.kind.named}; "
            f"{verb} {relation.kind.spelled} {name_text(relation.name)} is the statement for it"
        )


def require_table(relation: Relation) -> None:
    if relation.kind is not Kind.TABLE:
        raise UsageError(f"{relation.name}: expected a table, found {relation.kind.named}; only the system changes it")
