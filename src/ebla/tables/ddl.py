"""Statements that create, alter and drop tables. Each is one exclusive commit; ALTER waits behind a barrier.

Column names in files never change (`Column.physical`), so adding, dropping, renaming and widening touch no file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, Version
from ebla.base.settings import Settings
from ebla.catalog import reads, topology
from ebla.errors import DuplicateNameError, TypeMismatchError, UnknownNameError, UsageError
from ebla.model import changes as c
from ebla.model.lifecycle.node import may_receive
from ebla.model.relation import HIDDEN_KEY, RESERVED, Column, Constraint, Default, Kind, Relation, misnamed
from ebla.model.scopes import SCHEMA, TOPOLOGY, of_relation
from ebla.model.topology import Member, copies_max
from ebla.relations import indexes as definition
from ebla.relations.guard import dropping, refuse_if_read
from ebla.sql.lex import Kind as TokenKind
from ebla.sql.lex import lex, name_text, unquote_name
from ebla.tables import blockers
from ebla.tables.context import Context
from ebla.values import grammar, types
from ebla.values.defaults import of_array, scalar
from ebla.values.grammar import parse

TABLETS_MAX = 2**16
POLL_S = 0.02


# ---- deciding -------------------------------------------------------------------------------------------


def place(
    nodes: Sequence[Member], reached: Collection[NodeId], tablets: int, replication: int
) -> tuple[tuple[NodeId, ...], ...]:
    """Spread tablets over the nodes in turn, copies of one tablet over different racks where there are enough.

    A node whose storage root is not reached has a copy only where the others are too few.
    """
    receivers = [n for n in nodes if may_receive(n.state)]
    most, what = copies_max(receivers)
    if replication > most:
        raise UsageError(
            f"replication: expected at most the number of {what} ({most}), found {replication}; add {what} first"
        )
    up = [n for n in receivers if n.id in reached]
    down = [n for n in receivers if n.id not in reached]
    placed = []
    for tablet in range(tablets):
        chosen: list[Member] = []
        for some, fresh_rack in ((up, True), (up, False), (down, True), (down, False)):
            for i in range(len(some)):
                node = some[(tablet + i) % len(some)]
                racks = {(n.datacenter, n.rack) for n in chosen}
                new = (node.datacenter, node.rack) not in racks
                if len(chosen) < replication and node not in chosen and (new or not fresh_rack):
                    chosen.append(node)
        placed.append(tuple(n.id for n in chosen))
    return tuple(placed)


def check_name(name: str, what: str) -> None:
    wrong = misnamed(name)
    if wrong is not None:
        raise UsageError(f"{what} {name!r}: {wrong}; choose another name")


def check_fields(table: str, column: Column) -> None:
    """Refuse names of struct fields that a column must not have either: they stand in the same lines."""
    wrong = grammar.misnamed_field(column.type)
    if wrong is not None:
        field, found = wrong
        raise UsageError(f"{table}.{column.name}: field {field!r}: {found}; choose another name")


def check_columns(table: str, columns: Sequence[Column]) -> None:
    if not columns:
        raise UsageError(f"{table}: expected at least one column, found none")
    seen: set[str] = set()
    for column in columns:
        check_name(column.name, "column")
        check_fields(table, column)
        low = column.name.lower()
        if low in seen:
            raise DuplicateNameError(f"{table}: expected each column once, found {column.name} twice")
        if (low in RESERVED or low.startswith("_ebla_")) and not column.hidden:
            raise UsageError(f"{table}.{column.name}: expected another name, found one that Ebla uses itself")
        seen.add(low)


def new_columns(table: str, declared: Sequence[Column], primary_key: Sequence[str]) -> tuple[Column, ...]:
    """Columns of a new table: types in their canonical spelling, key positions set, a hidden key if there is none."""
    check_columns(table, declared)
    positions: dict[str, int] = {}
    for position, name in enumerate(primary_key):
        if name.lower() in positions:
            raise DuplicateNameError(f"{table}: expected each key column once, found {name} twice")
        positions[name.lower()] = position
    names = {d.name.lower() for d in declared}
    missing = [n for n in primary_key if n.lower() not in names]
    if missing:
        raise UnknownNameError(
            f"{table}: expected key columns among {', '.join(d.name for d in declared)}, found {missing[0]}"
        )
    made = []
    for column in declared:
        kind = types.canonical(column.type)
        at = positions.get(column.name.lower())
        if at is not None and not types.is_key_type(kind):
            raise TypeMismatchError(
                f"{table}.{column.name}: expected a type that can be ordered for a key, found {kind}"
            )
        nullable = column.nullable and at is None
        made.append(replace(column, physical=column.name, type=kind, key_position=at, nullable=nullable))
    if not primary_key:
        made += [
            Column(name=n, physical=n, type="bigint", nullable=False, key_position=i, hidden=True)
            for i, n in enumerate(HIDDEN_KEY)
        ]
    return tuple(made)


def free_physical(name: str, used: set[str]) -> str:
    """A name for files that no column of the relation ever had."""
    taken = {u.lower() for u in used}
    number, candidate = 1, name
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def require_table(relation: Relation) -> None:
    if relation.kind is not Kind.TABLE:
        raise UsageError(f"{relation.name}: expected a table, found {relation.kind.named}; only the system changes it")


def require_kind(relation: Relation, kind: Kind, verb: str) -> None:
    """Refuse a statement that is about another kind of relation, and say which one is about this."""
    if relation.kind is not kind:
        raise UsageError(
            f"{relation.name}: expected {kind.named}, found {relation.kind.named}; "
            f"{verb} {relation.kind.spelled} {name_text(relation.name)} is the statement for it"
        )


def find_column(relation: Relation, name: str) -> Column:
    found = relation.column(name)
    if found is None or found.hidden:
        have = ", ".join(col.name for col in relation.visible)
        raise UnknownNameError(f"{relation.name}: expected one of columns {have}, found {name}")
    return found


# ---- acting ---------------------------------------------------------------------------------------------


def create_table(
    context: Context,
    name: str,
    declared: Sequence[Column],
    primary_key: Sequence[str],
    *,
    if_not_exists: bool = False,
    or_replace: bool = False,
    comment: str | None = None,
    options: Mapping[str, object] | None = None,
    constraints: Sequence[Constraint] = (),
) -> bool:
    check_name(name, "table")
    columns = new_columns(name, declared, primary_key)
    tablets, replication, rest = storage_options(context.settings, options or {})
    rest |= kept_constraints(constraints)
    reached = context.reached()

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        gone = replaced(connection, name, if_not_exists=if_not_exists, or_replace=or_replace)
        if gone is None:
            return None
        nodes = list(topology.members(connection).values())
        created = c.CreateRelation(
            name=name,
            kind=Kind.TABLE,
            tablets=tablets,
            replication=replication,
            columns=columns,
            placement=place(nodes, reached, tablets, replication),
            comment=comment,
            options=rest,
        )
        guards = frozenset() if gone else frozenset({SCHEMA, TOPOLOGY})
        reason = f"{'replace' if gone else 'create'} table {name}"
        return c.Decision(reason=reason, updates=(*gone, created), guards=guards)

    return context.catalog.decide(decide, node=context.node) is not None


def kept_constraints(constraints: Sequence[Constraint]) -> dict[str, object]:
    """What the relation of a table keeps of its constraints."""
    return {"constraints": [asdict(one) for one in constraints]} if constraints else {}


def replaced(
    connection: Connection, name: str, *, if_not_exists: bool, or_replace: bool
) -> tuple[c.Update, ...] | None:
    """What makes the name of a new table free; `None`: it is taken, and that is well."""
    found = reads.find_relation(connection, name)
    if found is None:
        return ()
    if if_not_exists:
        return None
    if not or_replace:
        raise DuplicateNameError(f"table {name}: expected a free name, found {found.kind.named} of that name")
    require_kind(found, Kind.TABLE, "CREATE OR REPLACE")
    refuse_if_read(connection, found, "replace it")
    indexes = definition.of_base(connection, found)
    if indexes:
        names = ", ".join(index.name for index in indexes)
        raise UsageError(
            f"{found.name}: expected that no index is on it, found {names}; drop them first, then replace it"
        )
    gone, _ = dropping(connection, found, cascade=False)
    return gone


def storage_options(settings: Settings, options: Mapping[str, object]) -> tuple[int, int, dict[str, object]]:
    given = {k.lower(): v for k, v in options.items()}
    unknown = sorted(set(given) - {"tablets", "replication", "min_copies"})
    if unknown:
        raise UnknownNameError(f"WITH: expected tablets, replication or min_copies, found {unknown[0]}")
    tablets = given.get("tablets", settings.tablets)
    replication = given.get("replication", settings.replication)
    if (
        not isinstance(tablets, int)
        or isinstance(tablets, bool)
        or not 1 <= tablets <= TABLETS_MAX
        or tablets & (tablets - 1)
    ):
        raise UsageError(f"tablets: expected a power of two from 1 to {TABLETS_MAX}, found {tablets}")
    if type(replication) is not int or replication < 1:
        raise UsageError(f"replication: expected a whole number from 1, found {replication}")
    if "min_copies" not in given:
        return tablets, replication, {}
    least = given["min_copies"]
    if type(least) is not int or not 1 <= least <= replication:
        raise UsageError(f"min_copies: expected a whole number from 1 to the replication {replication}, found {least}")
    return tablets, replication, {"min_copies": least}


def drop_table(context: Context, name: str, *, if_exists: bool = False, cascade: bool = False) -> bool:
    def decide(connection: Connection, at: Version) -> c.Decision | None:
        relation = reads.find_relation(connection, name)
        if relation is None and if_exists:
            return None
        relation = relation or reads.relation(connection, name)
        require_kind(relation, Kind.TABLE, "DROP")
        updates, more = dropping(connection, relation, cascade=cascade)
        return c.Decision(reason=f"drop table {relation.name}{more}", relation=relation.id, updates=updates)

    return context.catalog.decide(decide, node=context.node) is not None


def on_relation(relation: RelationId, reason: str, update: c.Update) -> c.Decision:
    """A decision that was made from one relation alone, and changes it."""
    return c.Decision(reason=reason, relation=relation, updates=(update,), guards=frozenset({of_relation(relation)}))


def rename_table(context: Context, name: str, new: str, kind: Kind = Kind.TABLE) -> None:
    check_name(new, kind.value)

    def decide(connection: Connection, at: Version) -> c.Decision:
        relation = reads.relation(connection, name)
        require_kind(relation, kind, "ALTER")
        refuse_if_read(connection, relation, "rename it")
        taken = reads.find_relation(connection, new)
        if taken is not None and taken.id != relation.id:
            raise DuplicateNameError(f"{kind} {new}: expected a free name, found {taken.kind.named} of that name")
        rename = c.RenameRelation(relation=relation.id, name=new)
        return on_relation(relation.id, f"rename {kind} {relation.name} to {new}", rename)

    context.catalog.decide(decide, node=context.node)


def comment_table(context: Context, name: str, comment: str | None) -> None:
    def decide(connection: Connection, at: Version) -> c.Decision:
        relation = reads.relation(connection, name)
        update = c.SetRelationComment(relation=relation.id, comment=comment)
        return on_relation(relation.id, f"comment on table {relation.name}", update)

    context.catalog.decide(decide, node=context.node)


Reshape = Callable[[Relation, set[str]], Sequence[Column]]
"""From a relation and all names its files ever used to its new columns."""


def reshape(
    context: Context,
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


def barrier(context: Context, relation: Relation) -> None:
    """Wait until no open transaction was planned before the relation's present schema; then abort those that were.

    After the change, a transaction planned with the present schema is one state behind, which its commit accepts.
    """
    began_us = context.catalog.clock()

    while waiting := blockers.planned_before(context, relation, began_us):
        context.progress(f"waiting for transaction {waiting[0].transaction} ({waiting[0].reason})", None)
        time.sleep(POLL_S)


def add_columns(
    context: Context,
    name: str,
    declared: Sequence[Column],
    *,
    if_not_exists: bool = False,
    fills: Callable[[Connection, Relation], bool] | None = None,
) -> None:
    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        taken = set(used)
        added = []
        for column in declared:
            if relation.column(column.name) is not None:
                if if_not_exists:
                    continue
                raise DuplicateNameError(f"{relation.name}: expected a new column, found {column.name} there already")
            if not column.nullable:
                raise TypeMismatchError(
                    f"{relation.name}.{column.name}: expected a nullable column, found NOT NULL; "
                    "rows that are there already have no value for it"
                )
            physical = free_physical(column.name, taken)
            taken.add(physical)
            added.append(replace(column, physical=physical, type=types.canonical(column.type)))
        hidden = [col for col in relation.columns if col.hidden]
        return [*relation.visible, *added, *hidden]

    reshape(context, name, change, "add " + ", ".join(d.name for d in declared), fills=fills)


def drop_columns(context: Context, name: str, names: Sequence[str], *, cascade: bool = False) -> None:
    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        gone = {find_column(relation, n).name for n in names}
        keyed = [col.name for col in relation.key if col.name in gone]
        if keyed:
            raise UsageError(f"{relation.name}: expected a column outside the primary key, found {keyed[0]}")
        if gone >= {col.name for col in relation.visible}:
            raise UsageError(f"{relation.name}: expected one column to remain, found all of them dropped")
        return [col for col in relation.columns if col.name not in gone]

    reshape(context, name, change, "drop " + ", ".join(names), dropped=names, cascade=cascade)


def rename_column(context: Context, name: str, old: str, new: str) -> None:
    check_name(new, "column")

    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        column = find_column(relation, old)
        taken = relation.column(new)
        if taken is not None and taken is not column:
            raise DuplicateNameError(f"{relation.name}: expected a new column name, found {new} there already")
        return [replace(col, name=new) if col is column else col for col in relation.columns]

    reshape(context, name, change, f"rename {old} to {new}", [old])


def widen_column(context: Context, name: str, column_name: str, new_type: str) -> None:
    wanted = types.canonical(new_type)

    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        column = find_column(relation, column_name)
        if column.key_position is not None and column.type != wanted:
            raise UsageError(
                f"{relation.name}.{column.name}: expected a column outside the primary key, found a key column; "
                "its type decides where rows lie"
            )
        if column.type != wanted and not types.widens(column.type, wanted):
            raise TypeMismatchError(
                f"{relation.name}.{column.name}: expected a type as which files of {column.type} can be read, "
                f"found {wanted}; add a column of that type and fill it with UPDATE"
            )
        default = None if column.default is None else _widened(column, column.default, wanted)
        return [replace(col, type=wanted, default=default) if col is column else col for col in relation.columns]

    reshape(context, name, change, f"{column_name} type {wanted}", [column_name])


def _widened(column: Column, default: Default, kind: str) -> Default:
    """A column's default as a value of a wider type."""
    one = scalar(default, parse(column.type), types.to_arrow(column.type))
    new = replace(column, type=kind, default=None)
    fitted = types.fit(pa.table({column.name: pa.repeat(one, 1)}), [new], relation="default")
    return of_array(default.text, fitted[0].combine_chunks(), parse(kind))


def comment_column(context: Context, name: str, column_name: str, comment: str | None) -> None:
    def change(relation: Relation, used: set[str]) -> Sequence[Column]:
        column = find_column(relation, column_name)
        return [replace(col, comment=comment) if col is column else col for col in relation.columns]

    reshape(context, name, change, f"comment on {column_name}")
