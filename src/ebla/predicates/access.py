"""Access paths: the sorted relations that rows are read through, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ebla.model.relation import Relation
from ebla.predicates.conditions import Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class PathColumn:
    base: str
    """The physical name in the relation that is asked."""
    path: str
    """The physical name in the path's own relation."""
    descending: bool = False


@dataclass(frozen=True, kw_only=True)
class AccessPath:
    """A relation sorted by `key`. An index's key ends with the key of the relation that it indexes."""

    relation: Relation
    key: tuple[PathColumn, ...]
    columns: Mapping[str, str]
    """Every column that can be read here: physical name in the asked relation to the name here."""
    predicate: tuple[Filter, ...] = ()
    """What holds of every row of a partial index."""
    promises: frozenset[str] = frozenset()
    """What holds of every row besides, as normalized text: conditions that only Spark understands."""
    is_base: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the session in which its expressions are evaluated."""

    @property
    def name(self) -> str:
        return self.relation.name

    @cached_property
    def identity(self) -> tuple[PathColumn, ...]:
        """The columns of the key that identify a row."""
        by_path = {column.path: column for column in self.key}
        return tuple(by_path[column.physical] for column in self.relation.identity)


def base_path(relation: Relation) -> AccessPath:
    return AccessPath(
        relation=relation,
        key=tuple(PathColumn(base=c.physical, path=c.physical) for c in relation.key),
        columns={c.physical: c.physical for c in relation.columns},
        is_base=True,
    )
