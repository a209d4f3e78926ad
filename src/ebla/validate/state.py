"""What there is between two statements of a script, and what later ones define."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ebla.model.relation import Kind
from ebla.sql import statements as st
from ebla.validate.facts import Columns, RelationFacts, ScriptItem, Warehouse


@dataclass(slots=True, kw_only=True)
class World:
    """What there is before a statement. Keys are in lower case."""

    relations: dict[str, RelationFacts]
    handlers: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    system: Mapping[str, Columns]

    @classmethod
    def of(cls, warehouse: Warehouse) -> World:
        return cls(
            relations={n.lower(): r for n, r in warehouse.relations.items()},
            handlers={n.lower(): (tuple(views), tuple(inputs)) for n, (views, inputs) in warehouse.handlers.items()},
            system=warehouse.system,
        )

    def names(self, kind: Kind | None = None) -> list[str]:
        return [r.name for r in self.relations.values() if kind is None or r.kind is kind]

    def inputs(self) -> dict[str, RelationFacts]:
        """What a query can read, system tables by their full names."""
        system = {
            f"system.{name}": RelationFacts(name=f"system.{name}", kind=Kind.TABLE, columns=columns)
            for name, columns in self.system.items()
        }
        return {**self.relations, **system}

    def readable(self) -> list[str]:
        return [r.name for r in self.relations.values() if r.kind is not Kind.INDEX]

    def add(self, relation: RelationFacts) -> None:
        self.relations[relation.name.lower()] = relation

    def remove(self, name: str) -> None:
        """A relation goes with its indexes, and with the views that read it."""
        for reader in self.readers(name):
            self.remove(reader)
        self.relations.pop(name.lower(), None)
        for index in [n for n, r in self.relations.items() if r.base == name.lower()]:
            del self.relations[index]
        self.rename_in_handlers(name, None)

    def rename_in_handlers(self, name: str, new: str | None) -> None:
        """A view that goes leaves its handler; one that is renamed stays in it."""
        for handler, (views, inputs) in self.handlers.items():
            kept = [new if v.lower() == name.lower() else v for v in views]
            self.handlers[handler] = (tuple(v for v in kept if v is not None), inputs)

    def readers(self, name: str) -> list[str]:
        return sorted(r.name for r in self.relations.values() if name.lower() in r.reads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    number: int
    line: int
    reads: frozenset[str]


def definitions(items: Iterable[ScriptItem]) -> dict[str, Definition]:
    """The last statement that creates each name."""
    found: dict[str, Definition] = {}
    for item in items:
        made = item.statement
        if isinstance(made, st.CreateView | st.CreateTable):
            refs = made.query.refs if isinstance(made, st.CreateView) else ()
            reads = frozenset(r.name.lower() for r in refs)
            found[made.name.lower()] = Definition(number=item.number, line=item.source.line, reads=reads)
    return found


def path_between(reads: Mapping[str, frozenset[str]], start: str, end: str) -> list[str] | None:
    """A chain of views from `start` to `end`, each reading the next."""
    chains, seen = [[start]], {start}
    while chains:
        chain = chains.pop(0)
        if chain[-1] == end:
            return chain
        for name in sorted(reads.get(chain[-1], frozenset()) - seen):
            seen.add(name)
            chains.append([*chain, name])
    return None
