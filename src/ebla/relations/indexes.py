"""What an index is, and where it stands.

An index is a relation. Its key is the indexed columns and expressions, and behind them the base's key; included columns
lie beside. An entry lies in the tablet of the row it stands for. Columns of the base keep their physical names, and
expressions have names of their own (`_x0`, `_x1`, …). All else is in the relation's options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from sqlalchemy import Connection

from ebla.base.ids import RelationId, Version
from ebla.catalog import index_states, memory, reads
from ebla.catalog.index_states import IndexState
from ebla.errors import StorageError, UnknownNameError, UsageError
from ebla.model.lifecycle.index import Permission, may_compact, may_read, writer_deletes
from ebla.model.relation import Column, Kind, Relation
from ebla.relations.stored_values import read
from ebla.sql.lex import Kind as TokenKind
from ebla.sql.lex import lex, unquote_name

if TYPE_CHECKING:
    from ebla.predicates.conditions import Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One column of an index's own, before the base's key."""

    text: str
    """The expression as the user wrote it."""
    physical: str
    """The column's name in the index's files; for a plain column also in the base's."""
    is_expression: Annotated[bool, Field(validation_alias="expression")]
    descending: bool

    @property
    def said(self) -> str:
        """The item as a statement has it, with its order."""
        return self.text + (" DESC" if self.descending else "")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What the relation of an index keeps of it in its options."""

    items: tuple[Item, ...]
    include: tuple[str, ...]
    """Physical names."""
    where: str | None
    unique: bool
    settings: Mapping[str, str]
    """The settings of the session whose expressions these are."""


@dataclass(frozen=True, kw_only=True)
class Index(Definition):
    relation: Relation
    base: Relation
    stands: IndexState

    @property
    def name(self) -> str:
        return self.relation.name

    @property
    def id(self) -> RelationId:
        return self.relation.id

    @property
    def state(self) -> Permission:
        return self.stands.state

    @property
    def readable(self) -> bool:
        return may_read(self.state)

    @property
    def maintained(self) -> bool:
        return writer_deletes(self.state)

    @property
    def enforced(self) -> bool:
        """Whether writers refuse a value that is there: a unique index, once it has its first entries for good."""
        return self.unique and self.state in (Permission.BACKFILLING, Permission.READ_WRITE_AND_DELETE)

    @cached_property
    def conditions(self) -> tuple[Filter, ...] | None:
        """The condition of a partial index as comparisons of columns; `None` if only Spark understands it."""
        from ebla.predicates.select import conditions_of

        return () if self.where is None else conditions_of(self.where, self.base)

    @cached_property
    def promises(self) -> tuple[tuple[Filter, ...], frozenset[str]]:
        """What holds of every row: comparisons of columns, and as normalized text what only Spark understands."""
        from ebla.predicates.select import promises_of

        return ((), frozenset()) if self.where is None else promises_of(self.where, self.base)

    @property
    def expressions(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.is_expression)

    @property
    def needs_spark(self) -> bool:
        """Whether entries cannot be made of rows by copying columns and comparing them."""
        return bool(self.expressions) or self.conditions is None

    @cached_property
    def needed(self) -> tuple[Column, ...]:
        """The columns of the base that entries are made of."""
        texts = [item.text for item in self.expressions] + ([] if self.where is None else [self.where])
        used = {name for text in texts for name in _names(text)}
        plain = {c.physical for c in self.relation.columns}
        return tuple(c for c in self.base.columns if c.physical in plain or c.name.lower() in used)

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns whose values a unique index has once."""
        return self.relation.key[: len(self.items)]

    def uses(self, column: str) -> bool:
        found = self.base.column(column)
        return found is not None and found in self.needed


def _names(text: str) -> Iterable[str]:
    for token in lex(text):
        if token.kind in (TokenKind.WORD, TokenKind.QUOTED):
            yield unquote_name(token.text).lower()


def options(
    items: Iterable[Item],
    include: Iterable[str],
    where: str | None,
    *,
    unique: bool,
    placed_by: Iterable[str],
    settings: Mapping[str, str],
) -> dict[str, object]:
    """What the relation of an index keeps of its definition."""
    kept = [
        {"text": i.text, "physical": i.physical, "expression": i.is_expression, "descending": i.descending}
        for i in items
    ]
    return {
        "items": kept,
        "include": list(include),
        "where": where,
        "unique": unique,
        "placed_by": list(placed_by),
        "descending": [str(i["physical"]) for i in kept if i["descending"]],
        "settings": dict(settings),
    }


def _index(relation: Relation, base: Relation, stands: IndexState) -> Index:
    try:
        kept = read(Definition, relation.options)
    except ValueError as error:
        raise StorageError(
            f"index {relation.name}: expected a stored definition that this release can read, found {error}; "
            "open the warehouse with the release that made the index"
        ) from None
    return Index(relation=relation, base=base, stands=stands, **vars(kept))


def of_base(connection: Connection, base: Relation) -> list[Index]:
    found = []
    for stands in index_states.of_base(connection, base.id):
        relation = reads.relation_by_id(connection, stands.index)
        if relation is not None:
            found.append(_index(relation, base, stands))
    return found


class IndexCache:
    """Indexes by base, as they were at the last schema commit: only such a commit changes what they are or may do.

    How far one is filled is not known here.
    """

    def __init__(self) -> None:
        self._kept: dict[RelationId, tuple[int, Relation, list[Index]]] = {}

    def of_base(self, connection: Connection, base: Relation) -> list[Index]:
        at = memory.counters(connection)["exclusive_version"]
        kept = self._kept.get(base.id)
        if kept is not None and kept[0] == at and kept[1] == base:
            return kept[2]
        found = of_base(connection, base)
        self._kept[base.id] = at, base, found
        return found


def find(connection: Connection, name: str) -> Index | None:
    relation = reads.find_relation(connection, name)
    if relation is None:
        return None
    stands = index_states.of_index(connection, relation.id)
    if relation.kind is not Kind.INDEX or stands is None:
        raise UsageError(f"{relation.name}: expected an index, found {relation.kind.named}")
    base = reads.relation_by_id(connection, stands.base)
    return None if base is None else _index(relation, base, stands)


def find_by_id(connection: Connection, number: RelationId) -> Index | None:
    relation = reads.relation_by_id(connection, number)
    return None if relation is None else find(connection, relation.name)


def load(connection: Connection, name: str) -> Index:
    found = find(connection, name)
    if found is None:
        names = [one.name for one in all_indexes(connection)]
        have = f"indexes are {', '.join(names[:20])}" if names else "there are no indexes yet"
        raise UnknownNameError(f"index {name}: expected an index of this name, found none; {have}")
    return found


def all_indexes(connection: Connection) -> list[Index]:
    found = []
    for stands in index_states.all_states(connection):
        relation = reads.relation_by_id(connection, stands.index)
        base = reads.relation_by_id(connection, stands.base)
        if relation is not None and base is not None:
            found.append(_index(relation, base, stands))
    return sorted(found, key=lambda i: i.name)


def at_version(connection: Connection, index: Index, version: Version) -> Index:
    """The same index with the columns that its base had at a version."""
    base = reads.relation(connection, index.base.name, version=version)
    return _index(index.relation, base, index.stands)


def may_fold(connection: Connection, relation: Relation) -> bool:
    """Not an index while it is filled: tombstones must stay above what the backfill brings."""
    if relation.kind is not Kind.INDEX:
        return True
    found = index_states.of_index(connection, relation.id)
    return found is not None and may_compact(found.state)
