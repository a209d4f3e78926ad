"""Statements followed in order: the one at hand, the state that it finds, and what is wrong so far.

A lookup reports an issue where there is no such name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ebla.base.issue import Code, Issue, did_you_mean
from ebla.model.relation import Kind, misnamed
from ebla.sql.query import TableRef
from ebla.validate.facts import (
    USED_BY_EBLA,
    RelationFacts,
    ScriptItem,
    ViewStep,
    is_reserved_column,
    is_reserved_name,
)
from ebla.validate.queries import QueryStep
from ebla.validate.state import Definition, World


@dataclass(slots=True, kw_only=True)
class Walk:
    item: ScriptItem
    """The statement at hand."""
    world: World
    later: Mapping[str, Definition]
    """The last statement that creates each name."""
    views: list[ViewStep] = field(default_factory=list)
    queries: list[QueryStep] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)

    def report(self, code: Code, at: int, message: str, hint: str = "") -> None:
        self.issues.append(self.item.issue(code, at, message, hint))

    # ---- relations and handlers -------------------------------------------------------------------------

    def relation(self, name: str) -> RelationFacts | None:
        found = self.world.relations.get(name.lower())
        if found is None:
            self._unknown(Code.UNKNOWN_TABLE, "table", name, self.world.names())
        return found

    def _unknown(
        self, code: Code, what: str, name: str, names: Iterable[str], found: RelationFacts | None = None
    ) -> None:
        wanted, several = ("an index", "indexes") if what == "index" else (f"a {what}", f"{what}s")
        has = "none" if found is None else found.kind.named
        message = f"{what} {name}: expected {wanted} of this name, found {has}"
        self.report(code, self.item.place_of(name), message, did_you_mean(name, names, several))

    def writable(self, name: str) -> RelationFacts | None:
        found = self.relation(name)
        if found is not None and found.kind is not Kind.TABLE:
            self.not_a_table(found)
            return None
        return found

    def not_a_table(self, found: RelationFacts) -> None:
        message = f"{found.name}: expected a table, found {found.kind.named}"
        hint = f"only the system changes {found.kind.named}: change the tables that it reads"
        self.report(Code.NOT_A_TABLE, self.item.place_of(found.name), message, hint)

    def view(self, name: str, *, optional: bool = False) -> RelationFacts | None:
        return self._of_kind(Kind.VIEW, Code.UNKNOWN_VIEW, name, optional)

    def index(self, name: str, *, optional: bool = False) -> bool:
        return self._of_kind(Kind.INDEX, Code.UNKNOWN_INDEX, name, optional) is not None

    def _of_kind(self, kind: Kind, code: Code, name: str, optional: bool) -> RelationFacts | None:
        found = self.world.relations.get(name.lower())
        if found is not None and found.kind is kind:
            return found
        if found is not None or not optional:
            self._unknown(code, kind.value, name, self.world.names(kind), found)
        return None

    def derived(self, name: str) -> None:
        """A view or an index: what is built."""
        found = self.world.relations.get(name.lower())
        if found is None or found.kind is not Kind.INDEX:
            self.view(name)

    def handler(self, name: str, *, optional: bool = False) -> bool:
        if name.lower() in self.world.handlers:
            return True
        if not optional:
            self._unknown(Code.UNKNOWN_HANDLER, "handler", name, self.world.handlers)
        return False

    def free(self, name: str, at: int, what: str, optional: bool) -> None:
        if is_reserved_name(name):
            message = f"{what} {name!r}: {misnamed(name)}"
            self.report(Code.RESERVED_NAME, at, message, "choose another name")
        taken = self.world.relations.get(name.lower())
        if taken is not None and not optional:
            code = Code.DUPLICATE_TABLE if what == "table" else Code.DUPLICATE_VIEW
            message = f"{what} {name}: expected a free name, found {taken.kind.named} of that name"
            hint = f"drop it first, choose another name, or write IF NOT EXISTS to keep the {taken.kind}"
            self.report(code, at, message, hint)

    def unneeded(self, name: str, verb: str) -> None:
        readers = self.world.readers(name)
        if readers:
            message = f"{name}: expected that no view needs it, found {', '.join(readers)}"
            hint = "drop them first" + (", or write CASCADE" if verb == "drop" else "")
            self.report(Code.IN_USE, self.item.place_of(name), message, hint)

    # ---- columns and expressions ------------------------------------------------------------------------

    def column_name(self, name: str) -> None:
        if is_reserved_column(name):
            message = f"column {name!r}: {misnamed(name) or USED_BY_EBLA}"
            hint = "give the column another name"
            self.report(Code.RESERVED_NAME, self.item.place_of(name), message, hint)

    def expression(self, base: RelationFacts, text: str, at: int | None = None) -> None:
        """Names in an expression over the columns of one relation are looked up in the next phase."""
        begin = max(self.item.source.text.rfind(text), 0) if at is None else at
        self.queries.append(
            QueryStep(item=self.item, text=text, begin=begin, inputs={}, target=base, is_expression=True)
        )

    def mentions(self, refs: Iterable[TableRef], begin: int) -> bool:
        """Whether everything is there that a query names, and can be read."""
        before = len(self.issues)
        for ref in refs:
            if len(ref.parts) == 2 and ref.parts[0].lower() == "system":
                if self.world.system and ref.name.lower() not in self.world.system:
                    message = f"system.{ref.name}: expected a system table, found none of this name"
                    hint = did_you_mean(ref.name, self.world.system, "system tables")
                    self.report(Code.UNKNOWN_TABLE, begin + ref.start, message, hint)
            elif len(ref.parts) == 1:
                found = self.world.relations.get(ref.name.lower())
                if found is None or found.kind is Kind.INDEX:
                    has = "none" if found is None else "an index"
                    message = f"table {ref.name}: expected a table of this name, found {has}"
                    hint = did_you_mean(ref.name, self.world.readable(), "tables")
                    self.report(Code.UNKNOWN_TABLE, begin + ref.start, message, hint)
        return len(self.issues) == before

    def has_column(self, relation: RelationFacts | None, name: str) -> bool:
        """Whether a relation has a column. One whose columns only Spark can tell is taken not to."""
        if relation is None or relation.columns is None:
            return False
        if name.lower() in (c.lower() for c in relation.columns):
            return True
        message = f"expected a column of {relation.name}, found {name}"
        hint = did_you_mean(name, relation.columns, "columns")
        self.report(Code.UNKNOWN_COLUMN, self.item.place_of(name, last=True), message, hint)
        return False
