"""A change of a relation's columns: one exclusive commit behind a barrier, and what else needs the columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.errors import UsageError
from ebla.model import changes as c
from ebla.model.relation import Column, Relation
from ebla.model.scopes import of_relation
from ebla.relations import indexes as definition
from ebla.relations.guard import dropping, refuse_if_read, require_table
from ebla.sql.lex import Kind as TokenKind
from ebla.sql.lex import lex, name_text, unquote_name
from ebla.tables import blockers
from ebla.tables.new_table import (
    check_columns,
)
from ebla.tables.write_access import WriteAccess

POLL_S = 0.02


Reshape = Callable[[Relation, set[str]], Sequence[Column]]
"""From a relation and all names its files ever used to its new columns."""


def reshape(
    context: WriteAccess,
    name: str,
    change: Reshape,
    reason: str,
    needed: Sequence[str] = (),
    dropped: Sequence[str] = (),
    *,
    cascade: bool = False,
    fills: Callable[[Connection, Relation], bool] | None = None,
) -> None:
    """Change a relation's columns, once no transaction is older than the state before this one.

    `needed` names the columns that no view may need; `dropped` those that go with the views that do, if `cascade`.
    `fills` says whether new rows get values that a write planned before the change would not give them, or refuses.
    """
    with context.catalog.reading() as connection:
        relation = reads.relation(connection, name)
        require_table(relation)
        wanted = change(
            relation, reads.physical_names(connection, relation.id)
        )  # a wrong request does not wait for writers
        if fills is not None:
            fills(connection, relation)
    if tuple(wanted) == relation.columns:
        return
    barrier(context, relation)

    def decide(connection: Connection, at: Version) -> c.Decision:
        current = reads.relation(connection, name)
        columns = tuple(change(current, reads.physical_names(connection, current.id)))
        check_columns(current.name, columns)
        outdates = fills is not None and fills(connection, current)
        if needed:
            refuse_if_read(connection, current, "change it", needed)
        views: tuple[c.Update, ...] = ()
        more = ""
        indexes = _refuse_if_indexed(connection, current, needed, dropped, cascade=cascade)
        indexes += _refuse_if_constrained(current, needed, dropped, cascade=cascade)
        if dropped:
            views, more = dropping(connection, current, dropped, cascade=cascade)
        return c.Decision(
            reason=f"alter table {current.name}: {reason}{more}",
            relation=current.id,
            updates=(*views, *indexes, c.SetColumns(relation=current.id, columns=columns, outdates_writes=outdates)),
            # Whether a view needs a column also follows from the other relations that it reads.
            guards=frozenset() if needed or dropped else frozenset({of_relation(current.id)}),
        )

    context.catalog.decide(decide, node=context.node)


def _refuse_if_indexed(
    connection: Connection, relation: Relation, needed: Sequence[str], dropped: Sequence[str], *, cascade: bool
) -> list[c.Update]:
    """Refuse a change of columns that indexes are made of. Those of dropped ones go with them, if `cascade`."""
    found = definition.of_base(connection, relation)
    for columns, goes in ((needed, False), (dropped, cascade)):
        users = [index for index in found if any(index.uses(name) for name in columns)]
        if users and not goes:
            names = ", ".join(index.name for index in users)
            or_else = ", or add CASCADE" if columns is dropped else ""
            raise UsageError(
                f"{relation.name} ({', '.join(columns)}): expected that no index needs it, found {names}; "
                f"DROP INDEX first{or_else}"
            )
        if goes:
            return [c.DropRelation(relation=index.id) for index in users]
    return []


def _refuse_if_constrained(
    relation: Relation, needed: Sequence[str], dropped: Sequence[str], *, cascade: bool
) -> list[c.Update]:
    """The same for the constraints that name them."""
    going = {name.lower() for name in (*needed, *dropped)}
    users = [one for one in relation.constraints if going & _said(one.text)]
    if not users:
        return []
    if needed or not cascade:
        names = ", ".join(one.name for one in users)
        or_else = ", or add CASCADE" if dropped else ""
        raise UsageError(
            f"{relation.name} ({', '.join((*needed, *dropped))}): expected that no constraint names it, found {names}; "
            f"ALTER TABLE {name_text(relation.name)} DROP CONSTRAINT first{or_else}"
        )
    kept = tuple(one for one in relation.constraints if one not in users)
    return [c.SetConstraints(relation=relation.id, constraints=kept)]


def _said(text: str) -> set[str]:
    return {unquote_name(t.text).lower() for t in lex(text) if t.kind in (TokenKind.WORD, TokenKind.QUOTED)}


def barrier(context: WriteAccess, relation: Relation) -> None:
    """Wait until no open transaction was planned before the relation's present schema; then abort those that were.

    After the change, a transaction planned with the present schema is one state behind, which its commit accepts.
    """
    began_us = context.catalog.clock()

    while waiting := blockers.planned_before(context, relation, began_us):
        context.progress(f"waiting for transaction {waiting[0].transaction} ({waiting[0].reason})", None)
        time.sleep(POLL_S)
