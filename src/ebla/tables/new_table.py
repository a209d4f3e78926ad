"""What a new table is: its name, its columns, its options, where its tablets lie, and what it takes the place of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.base.ids import NodeId
from ebla.base.settings import Settings
from ebla.catalog import reads, topology
from ebla.errors import DuplicateNameError, TypeMismatchError, UnknownNameError, UsageError
from ebla.model import changes as c
from ebla.model.relation import HIDDEN_KEY, RESERVED, Column, Constraint, Kind, misnamed
from ebla.model.topology import Member, copies_max, receiving
from ebla.relations import indexes as definition
from ebla.relations.guard import dropping, refuse_if_read, require_kind
from ebla.values import grammar, types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLETS_MAX = 2**16


def place(
    nodes: Sequence[Member], reached: Collection[NodeId], tablets: int, replication: int
) -> tuple[tuple[NodeId, ...], ...]:
    """Spread tablets over the nodes in turn, copies of one tablet over different racks where there are enough.

    A node whose storage root is not reached has a copy only where the others are too few.
    """
    receivers = receiving(nodes)
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


def place_on_members(
    connection: Connection, reached: Collection[NodeId], tablets: int, replication: int
) -> tuple[tuple[NodeId, ...], ...]:
    """The same, over the nodes that the cluster has."""
    return place(list(topology.members(connection).values()), reached, tablets, replication)


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


def columns_of(table: str, frame: DataFrame) -> list[Column]:
    """The columns of a query, with the types that Spark gives them."""
    made = []
    for field in frame.schema.fields:
        try:
            kind = types.from_spark(field.dataType)
        except TypeMismatchError as error:
            raise TypeMismatchError(f"{table}.{field.name}: {error}; CAST it in the query") from None
        made.append(Column(name=field.name, physical=field.name, type=kind))
    return made
