"""Phase 2: names and structure. Statements are followed in order, as if each of them had worked.

The state between two statements is a `World`: which tables, views and handlers there would be. A view gets the columns
of its inputs at that moment; its own are found by the next phases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from ebla.algebra.nodes import NotUnderstood
from ebla.base.issue import Code, Issue, did_you_mean, has_errors
from ebla.errors import EblaError
from ebla.model.relation import Kind, misnamed
from ebla.sql import dml
from ebla.sql import statements as st
from ebla.sql.places import shared
from ebla.sql.query import Query, TableRef
from ebla.validate.handlers import handler_issues
from ebla.validate.known import (
    USED_BY_EBLA,
    Columns,
    Known,
    KnownRelation,
    Part,
    ViewStep,
    is_reserved_column,
    is_reserved_name,
)
from ebla.validate.queries import QueryStep, result_columns
from ebla.validate.state import Definition, World, definitions, path_between
from ebla.validate.tree import tree_of
from ebla.values import types
from ebla.values.grammar import misnamed_field


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the statements define and read, in order, and what is wrong with names and structure."""

    views: Sequence[ViewStep]
    """Without those in which something is wrong."""
    queries: Sequence[QueryStep]
    issues: list[Issue]


def check(parts: Sequence[Part], known: Known) -> Checked:
    walk = _Walk(parts, World.of(known))
    failed: set[int] = set()
    for part in parts:
        before = len(walk.issues)
        walk.step(part)
        if has_errors(walk.issues[before:]):
            failed.add(part.number)
    return Checked(
        views=[step for step in walk.steps if step.part.number not in failed],
        queries=[step for step in walk.queries if step.part.number not in failed],
        issues=walk.issues,
    )


class _Walk:
    def __init__(self, parts: Sequence[Part], world: World) -> None:
        self.world = world
        self.steps: list[ViewStep] = []
        self.queries: list[QueryStep] = []
        self.issues: list[Issue] = []
        self._later = definitions(parts)

    def step(self, part: Part) -> None:
        match part.statement:
            case st.CreateTable():
                self._create_table(part, part.statement)
            case st.CreateView():
                self._create_view(part, part.statement)
            case st.CreateHandler():
                self.issues += handler_issues(part, part.statement, self.world.relations, self.world.handlers)
                self._add_handler(part.statement)
            case st.ExplainView(create=st.CreateView() as made):
                self._create_view(part, made, explained=True)
            case st.ExplainView(name=name):
                self._known_view(part, name)
            case st.DropTable(name=name, if_exists=optional, cascade=cascade):
                self._drop(part, name, Kind.TABLE, optional=optional, cascade=cascade)
            case st.DropView(name=name, if_exists=optional, cascade=cascade):
                self._drop(part, name, Kind.VIEW, optional=optional, cascade=cascade)
            case st.RenameTable(table=name, new_name=new):
                self._rename(part, name, new, Kind.TABLE)
            case st.RenameView(name=name, new_name=new):
                self._rename(part, name, new, Kind.VIEW)
            case st.DropHandler(name=name, if_exists=optional):
                if self._known_handler(part, name, optional=optional):
                    del self.world.handlers[name.lower()]
            case st.AlterHandler(name=name):
                self._known_handler(part, name)
            case st.Flush(names=names):
                for name in names:
                    self._known_view(part, name)
            case st.WaitFor(names=names):
                for name in names:
                    self._known_derived(part, name)
            case st.AddColumns() | st.DropColumns() | st.RenameColumn() | st.AlterColumnType():
                self._alter(part, part.statement)
            case Query():
                self._read(part, part.statement)
            case st.Explain(query=query):
                self._read(part, query)
            case st.Insert():
                self._insert(part, part.statement)
            case st.Update() | st.Delete() | st.Merge():
                self._change(part, part.statement)
            case st.Truncate(table=table) | st.Load(table=table):
                self._writable(part, table)
            case st.DropConstraint(table=table):
                self._writable(part, table)
            case st.AddConstraint(table=table, check=check):
                if (found := self._writable(part, table)) is not None:
                    self._expression(part, found, check.text)
            case st.SetDefault(table=table, column=column):
                self._names_column(part, self._writable(part, table), column)
            case st.SetColumnComment(table=table, column=column):
                self._names_column(part, self._known_relation(part, table), column)
            case st.SetTableComment(table=table):
                self._known_relation(part, table)
            case st.Compact(table=name) | st.Vacuum(table=name):
                if name is not None:
                    self._known_relation(part, name)
            case st.Describe(name=name, system=system):
                if not system:
                    self._known_relation(part, name)
            case st.CreateIndex():
                self._create_index(part, part.statement)
            case st.BuildIndexes(table=table):
                self._known_relation(part, table)
            case st.DropIndex(name=name, if_exists=optional):
                if self._known_index(part, name, optional=optional):
                    del self.world.relations[name.lower()]
            case st.Check(what="index", name=name) | st.Repair(what="index", name=name):
                self._known_index(part, name)
            case st.AlterBuild(name=name):
                self._known_derived(part, name)
            case st.Check(what="view", name=name) | st.Repair(what="view", name=name):
                self._known_view(part, name)
            case st.Check(name=name) | st.Repair(name=name):
                self._known_relation(part, name)
            case st.CancelBuild(name=name, if_exists=optional):
                self._drop(part, name, Kind.VIEW, optional=optional, cascade=False)
            case st.ShowProgress(name=name):
                if name is not None:
                    self._known_derived(part, name)
            case st.ShowCreate(what="view", name=name):
                self._known_view(part, name)
            case st.ShowCreate(what="table", name=name):
                self._known_relation(part, name)
            case st.ShowCreate(what="handler", name=name):
                self._known_handler(part, name)
            case st.ShowCreate(name=name):
                self._known_index(part, name)
            case st.ShowTables() | st.ShowViews() | st.ShowHandlers() | st.ShowIndexes():
                pass
            case _:
                assert_never(part.statement)

    # ---- tables -----------------------------------------------------------------------------------------

    def _create_table(self, part: Part, made: st.CreateTable) -> None:
        at = part.place_of(made.name)
        self._free(part, made.name, at, "table", made.if_not_exists or made.or_replace)
        if made.or_replace and made.name.lower() in self.world.relations:
            self._drop(part, made.name, Kind.TABLE, optional=True, cascade=False)
        if made.query is not None:
            self._read(part, made.query)
        columns: dict[str, str | None] = {}
        for spec in made.columns:
            self._column_name(part, spec.name)
            columns[spec.name] = self._type(part, spec)
        for key in made.primary_key:
            kind = columns.get(key)
            if kind is not None and not types.is_key_type(kind):
                message = f"{made.name}.{key}: expected a type that can be ordered for a key, found {kind}"
                hint = "use a key of numbers, strings, dates or times"
                self.issues.append(part.issue(Code.UNSUPPORTED_TYPE, part.place_of(key, last=True), message, hint))
        if made.name.lower() in self.world.relations:
            return
        known: Columns | None = columns if made.query is None else result_columns(made.query.text, self.world.relations)
        table = KnownRelation(name=made.name, kind=Kind.TABLE, columns=known, key=made.primary_key, made_by=part.number)
        for check in made.checks:
            self._expression(part, table, check.text)
        self._add(table)

    def _type(self, part: Part, spec: st.ColumnSpec) -> str | None:
        at = part.source.text.find(spec.type, part.place_of(spec.name) + len(spec.name))
        try:
            kind = types.canonical(spec.type)
            if (wrong := misnamed_field(kind)) is not None:
                message = f"column {spec.name!r}: field {wrong[0]!r}: {wrong[1]}"
                self.issues.append(part.issue(Code.RESERVED_NAME, max(at, 0), message, "choose another name"))
            return kind
        except EblaError as error:
            message, _, hint = str(error).partition("; ")
            hint = hint or "see docs/reference/sql.md for the types"
            self.issues.append(part.issue(Code.UNSUPPORTED_TYPE, max(at, 0), message, hint))
            return None

    def _column_name(self, part: Part, name: str) -> None:
        if is_reserved_column(name):
            message = f"column {name!r}: {misnamed(name) or USED_BY_EBLA}"
            hint = "give the column another name"
            self.issues.append(part.issue(Code.RESERVED_NAME, part.place_of(name), message, hint))

    def _alter(self, part: Part, change: st.AddColumns | st.DropColumns | st.RenameColumn | st.AlterColumnType) -> None:
        relation = self._known_relation(part, change.table)
        if relation is None or relation.columns is None:
            return
        if relation.kind is not Kind.TABLE:
            self._not_a_table(part, relation)
            return
        columns = dict(relation.columns)
        spelled = {c.lower(): c for c in columns}
        match change:
            case st.AddColumns(columns=specs, if_not_exists=optional):
                for spec in specs:
                    if optional and spec.name.lower() in spelled:
                        continue
                    self._column_name(part, spec.name)
                    if spec.name.lower() in spelled:
                        message = f"{relation.name}: expected a new column, found {spec.name} there already"
                        at = part.place_of(spec.name, last=True)
                        self.issues.append(part.issue(Code.DUPLICATE_COLUMN, at, message, "give it another name"))
                    columns[spec.name] = self._type(part, spec)
            case st.DropColumns(columns=names, cascade=cascade):
                for name in names:
                    if self._has_column(part, relation, name, unneeded=not cascade):
                        del columns[spelled[name.lower()]]
            case st.RenameColumn(column=name, new_name=new):
                if self._has_column(part, relation, name, unneeded=True):
                    if new.lower() in spelled and new.lower() != name.lower():
                        message = f"{relation.name}: expected a new column name, found {new} there already"
                        at = part.place_of(new, last=True)
                        self.issues.append(part.issue(Code.DUPLICATE_COLUMN, at, message, "choose another name"))
                    columns = {new if c.lower() == name.lower() else c: kind for c, kind in columns.items()}
                    key = tuple(new if k.lower() == name.lower() else k for k in relation.key)
                    relation = replace(relation, key=key)
            case st.AlterColumnType(column=name, type=kind):
                if self._has_column(part, relation, name, unneeded=True):
                    columns[spelled[name.lower()]] = self._type(part, st.ColumnSpec(name=name, type=kind))
            case _:
                assert_never(change)
        self._add(replace(relation, columns=columns))

    def _names_column(self, part: Part, relation: KnownRelation | None, name: str) -> None:
        if relation is not None and relation.columns is not None:
            self._has_column(part, relation, name)

    def _has_column(self, part: Part, relation: KnownRelation, name: str, *, unneeded: bool = False) -> bool:
        columns = relation.columns or {}
        if name.lower() in (c.lower() for c in columns):
            readers = [self.world.relations[r.lower()] for r in self.world.readers(relation.name)] if unneeded else []
            using = [r.name for r in readers if self._uses(r, relation.name, name)]
            if using:
                message = f"{relation.name} ({name}): expected that no view needs it, found {', '.join(using)}"
                self.issues.append(part.issue(Code.IN_USE, part.place_of(name), message, "drop them first"))
            return True
        message = f"expected a column of {relation.name}, found {name}"
        hint = did_you_mean(name, columns, "columns")
        self.issues.append(part.issue(Code.UNKNOWN_COLUMN, part.place_of(name, last=True), message, hint))
        return False

    def _uses(self, view: KnownRelation, table: str, column: str) -> bool:
        """Whether a view certainly uses a column. What cannot be told without Spark is told when the statement runs."""
        inputs = {n: r.shape_types() for n, r in self.world.relations.items() if n in view.reads}
        known = {n: kinds for n, kinds in inputs.items() if kinds is not None}
        if view.query is None or len(known) < len(view.reads):
            return False
        try:
            used = tree_of(view.query, known).used.get(table.lower(), frozenset())
            return column.lower() in {name.lower() for name in used}
        except NotUnderstood:
            return False

    # ---- views ------------------------------------------------------------------------------------------

    def _create_view(self, part: Part, made: st.CreateView, *, explained: bool = False) -> None:
        if not explained:
            if made.if_not_exists and made.name.lower() in self.world.relations:
                return  # nothing happens, whatever the query says
            taken = self.world.relations.get(made.name.lower())
            self._free(part, made.name, made.name_at, "view", optional=made.or_replace and _is_view(taken))
            if made.or_replace and _is_view(taken):
                self._unneeded(part, made.name, "replace")
        step = ViewStep(part=part, create=made, inputs={}, explained=explained)
        for name in (*made.columns, *made.primary_key):
            if is_reserved_column(name):
                message = f"column {name!r}: {misnamed(name) or USED_BY_EBLA}"
                at = part.place_of(name)
                self.issues.append(part.issue(Code.RESERVED_NAME, at, message, "give the column another name"))
        for ref in made.query.refs:
            issue = self._input_issue(step, ref, made.name if not explained or made.or_replace else None)
            self.issues += [issue] if issue is not None else []
        reads = dict.fromkeys(ref.name.lower() for ref in made.query.refs)
        inputs = {n: self.world.relations[n] for n in reads if n in self.world.relations}
        self.steps.append(replace(step, inputs=inputs))
        if not explained and (made.or_replace or made.name.lower() not in self.world.relations):
            self._add(
                KnownRelation(
                    name=made.name,
                    kind=Kind.VIEW,
                    columns=None,
                    reads=frozenset(reads),
                    query=made.query,
                    made_by=part.number,
                )
            )

    def _input_issue(self, step: ViewStep, ref: TableRef, view: str | None) -> Issue | None:
        name = ref.name
        at = ref.start + (step.create.query.text[ref.start : ref.end].lower().rfind(name.lower()) if ref.select else 0)
        if len(ref.parts) > 1:
            message = f"expected a table or a view as input, found the system table {'.'.join(ref.parts)}"
            return step.query_issue(Code.SYSTEM_INPUT, at, message, "read system tables with a query, not with a view")
        if ref.version is not None or ref.timestamp is not None:
            message = f"expected the present of {name}, found a version of it"
            return step.query_issue(Code.VERSIONED_INPUT, at, message, "leave out AS OF: a view follows its inputs")
        if view is not None and name.lower() == view.lower():
            if view.lower() in self.world.relations and not step.create.or_replace:
                return None  # the name is taken, which is said already
            message = f"expected inputs other than the view itself, found {name}"
            return step.query_issue(Code.DEPENDENCY_CYCLE, at, message, "read the tables that the view is made of")
        known = self.world.relations.get(name.lower())
        if known is not None and known.kind is Kind.INDEX:
            message = f"expected a table or a view as input, found the index {name}"
            return step.query_issue(Code.SYSTEM_INPUT, at, message, "read what it indexes")
        if known is not None:
            return None
        later = self._later.get(name.lower())
        if later is not None and later.number > step.part.number:
            return self._later_issue(step, ref, at, later, view)
        message = f"table {name}: expected a table of this name, found none"
        hint = did_you_mean(name, [n for n in self.world.names() if n != view], "tables")
        return step.query_issue(Code.UNKNOWN_TABLE, at, message, hint)

    def _later_issue(self, step: ViewStep, ref: TableRef, at: int, later: Definition, view: str | None) -> Issue:
        path = None if view is None else path_between(self._reads(), ref.name.lower(), view.lower())
        if path is not None:
            message = f"expected views that do not read each other, found {' -> '.join([str(view), *path])}"
            hint = "take the part that both need into a view of its own"
            return step.query_issue(Code.DEPENDENCY_CYCLE, at, message, hint)
        message = f"table {ref.name}: expected it created before it is read, found it in line {later.line}"
        return step.query_issue(Code.DEFINED_LATER, at, message, "move that statement before this one")

    def _reads(self) -> dict[str, frozenset[str]]:
        known = {n: r.reads for n, r in self.world.relations.items()}
        return {**known, **{n: d.reads for n, d in self._later.items()}}

    # ---- what is there ----------------------------------------------------------------------------------

    def _free(self, part: Part, name: str, at: int, what: str, optional: bool) -> None:
        if is_reserved_name(name):
            message = f"{what} {name!r}: {misnamed(name)}"
            self.issues.append(part.issue(Code.RESERVED_NAME, at, message, "choose another name"))
        taken = self.world.relations.get(name.lower())
        if taken is not None and not optional:
            code = Code.DUPLICATE_TABLE if what == "table" else Code.DUPLICATE_VIEW
            message = f"{what} {name}: expected a free name, found {taken.kind.named} of that name"
            hint = f"drop it first, choose another name, or write IF NOT EXISTS to keep the {taken.kind}"
            self.issues.append(part.issue(code, at, message, hint))

    def _add(self, relation: KnownRelation) -> None:
        self.world.relations[relation.name.lower()] = relation

    def _add_handler(self, made: st.CreateHandler) -> None:
        known = (made.views, tuple(i.name for i in made.inputs))
        self.world.handlers.setdefault(made.name.lower(), known)

    def _known_relation(self, part: Part, name: str) -> KnownRelation | None:
        found = self.world.relations.get(name.lower())
        if found is None:
            message = f"table {name}: expected a table of this name, found none"
            hint = did_you_mean(name, self.world.names(), "tables")
            self.issues.append(part.issue(Code.UNKNOWN_TABLE, part.place_of(name), message, hint))
        return found

    def _writable(self, part: Part, name: str) -> KnownRelation | None:
        found = self._known_relation(part, name)
        if found is not None and found.kind is not Kind.TABLE:
            self._not_a_table(part, found)
            return None
        return found

    def _not_a_table(self, part: Part, found: KnownRelation) -> None:
        message = f"{found.name}: expected a table, found {found.kind.named}"
        hint = f"only the system changes {found.kind.named}: change the tables that it reads"
        self.issues.append(part.issue(Code.NOT_A_TABLE, part.place_of(found.name), message, hint))

    def _read(self, part: Part, query: Query, wanted: tuple[str, int] | None = None) -> None:
        """What a plain query names must be there, too."""
        # An INSERT's or EXPLAIN's query is the rest of the statement.
        begin = max(part.source.text.rfind(query.text), 0)
        if self._mentions(part, query.refs, begin):
            inputs = self.world.inputs()
            self.queries.append(QueryStep(part=part, text=query.text, begin=begin, inputs=inputs, wanted=wanted))

    def _mentions(self, part: Part, refs: Iterable[TableRef], begin: int) -> bool:
        """Whether everything is there that a query names, and can be read."""
        before = len(self.issues)
        for ref in refs:
            if len(ref.parts) == 2 and ref.parts[0].lower() == "system":
                if self.world.system and ref.name.lower() not in self.world.system:
                    message = f"system.{ref.name}: expected a system table, found none of this name"
                    hint = did_you_mean(ref.name, self.world.system, "system tables")
                    self.issues.append(part.issue(Code.UNKNOWN_TABLE, begin + ref.start, message, hint))
            elif len(ref.parts) == 1:
                found = self.world.relations.get(ref.name.lower())
                if found is None or found.kind is Kind.INDEX:
                    has = "none" if found is None else "an index"
                    message = f"table {ref.name}: expected a table of this name, found {has}"
                    hint = did_you_mean(ref.name, self._readable(), "tables")
                    self.issues.append(part.issue(Code.UNKNOWN_TABLE, begin + ref.start, message, hint))
        return len(self.issues) == before

    def _readable(self) -> list[str]:
        return [r.name for r in self.world.relations.values() if r.kind is not Kind.INDEX]

    def _insert(self, part: Part, made: st.Insert) -> None:
        table = self._writable(part, made.table)
        if table is None or table.columns is None:
            self._read(part, made.source)
            return
        before = len(self.issues)
        for name in made.columns or ():
            self._has_column(part, table, name)
        width = len(table.columns if made.columns is None else made.columns)
        if made.width is not None and made.width != width and len(self.issues) == before:
            message = f"expected {width} values for {table.name}, found {made.width} in each row of VALUES"
            at = max(part.source.text.rfind(made.source.text), 0)
            self.issues.append(part.issue(Code.COLUMN_COUNT, at, message, "give a value for each column, or list them"))
        self._read(part, made.source, (table.name, width) if made.width is None else None)

    def _change(self, part: Part, made: st.Update | st.Delete | st.Merge) -> None:
        """The table, what the statement reads besides, and the columns that it names."""
        table = self._writable(part, made.table)
        if table is None:
            return
        text = part.source.text
        query = _made(made, table)
        refs = [] if query is None else [ref for ref in query.refs if not ref.target]
        placed = [] if query is None else [replace(r, start=shared(text, query.text, r.start) or 0) for r in refs]
        if self._mentions(part, placed, 0):
            inputs = self.world.inputs()
            self.queries.append(QueryStep(part=part, text=text, begin=0, inputs=inputs, target=table))

    # ---- indexes ----------------------------------------------------------------------------------------

    def _create_index(self, part: Part, made: st.CreateIndex) -> None:
        taken = self.world.relations.get(made.name.lower())
        if taken is not None:
            if not made.if_not_exists:
                message = f"index {made.name}: expected a free name, found {taken.kind.named} of that name"
                hint = "drop it first, choose another name, or write IF NOT EXISTS to keep it"
                self.issues.append(part.issue(Code.DUPLICATE_INDEX, part.place_of(made.name), message, hint))
            return
        base = self._known_relation(part, made.table)
        if base is None:
            return
        if base.kind is Kind.INDEX:
            self._not_a_table(part, base)
            return
        for item in made.items:
            self._expression(part, base, item.text, item.at)
        for name in made.include:
            self._names_column(part, base, name)
        if made.where is not None:
            self._expression(part, base, made.where)
        self._add(
            KnownRelation(name=made.name, kind=Kind.INDEX, columns=None, made_by=part.number, base=made.table.lower())
        )

    def _expression(self, part: Part, base: KnownRelation, text: str, at: int | None = None) -> None:
        """Names in an expression over the columns of one relation are looked up in the next phase."""
        begin = max(part.source.text.rfind(text), 0) if at is None else at
        self.queries.append(QueryStep(part=part, text=text, begin=begin, inputs={}, target=base, is_expression=True))

    def _known_index(self, part: Part, name: str, *, optional: bool = False) -> bool:
        found = self.world.relations.get(name.lower())
        if found is not None and found.kind is Kind.INDEX:
            return True
        if found is not None or not optional:
            has = "none" if found is None else found.kind.named
            message = f"index {name}: expected an index of this name, found {has}"
            hint = did_you_mean(name, self.world.names(Kind.INDEX), "indexes")
            self.issues.append(part.issue(Code.UNKNOWN_INDEX, part.place_of(name), message, hint))
        return False

    def _known_derived(self, part: Part, name: str) -> None:
        """A view or an index: what is built."""
        found = self.world.relations.get(name.lower())
        if found is None or found.kind is not Kind.INDEX:
            self._known_view(part, name)

    def _known_view(self, part: Part, name: str, *, optional: bool = False) -> KnownRelation | None:
        found = self.world.relations.get(name.lower())
        if found is not None and found.kind is Kind.VIEW:
            return found
        if found is not None or not optional:
            has = "none" if found is None else f"a {found.kind}"
            message = f"view {name}: expected a view of this name, found {has}"
            hint = did_you_mean(name, self.world.names(Kind.VIEW), "views")
            self.issues.append(part.issue(Code.UNKNOWN_VIEW, part.place_of(name), message, hint))
        return None

    def _known_handler(self, part: Part, name: str, *, optional: bool = False) -> bool:
        if name.lower() in self.world.handlers:
            return True
        if not optional:
            message = f"handler {name}: expected a handler of this name, found none"
            hint = did_you_mean(name, self.world.handlers, "handlers")
            self.issues.append(part.issue(Code.UNKNOWN_HANDLER, part.place_of(name), message, hint))
        return False

    def _drop(self, part: Part, name: str, kind: Kind, *, optional: bool, cascade: bool) -> None:
        if kind is Kind.VIEW:
            found = self._known_view(part, name, optional=optional)
        elif optional and name.lower() not in self.world.relations:
            return
        else:
            found = self._known_relation(part, name)
            if found is not None and found.kind is not kind:
                self._not_a_table(part, found)
                return
        if found is None:
            return
        if not cascade:
            self._unneeded(part, name, "drop")
        self._remove(name)

    def _remove(self, name: str) -> None:
        for reader in self.world.readers(name):
            self._remove(reader)
        self.world.relations.pop(name.lower(), None)
        for index in [n for n, r in self.world.relations.items() if r.base == name.lower()]:
            del self.world.relations[index]
        self._in_handlers(name, None)

    def _in_handlers(self, name: str, new: str | None) -> None:
        """A view that goes leaves its handler; one that is renamed stays in it."""
        for handler, (views, inputs) in self.world.handlers.items():
            kept = [new if v.lower() == name.lower() else v for v in views]
            self.world.handlers[handler] = (tuple(v for v in kept if v is not None), inputs)

    def _unneeded(self, part: Part, name: str, verb: str) -> None:
        readers = self.world.readers(name)
        if readers:
            message = f"{name}: expected that no view needs it, found {', '.join(readers)}"
            hint = "drop them first" + (", or write CASCADE" if verb == "drop" else "")
            self.issues.append(part.issue(Code.IN_USE, part.place_of(name), message, hint))

    def _rename(self, part: Part, name: str, new: str, kind: Kind) -> None:
        found = self._known_view(part, name) if kind is Kind.VIEW else self._known_relation(part, name)
        if found is None:
            return
        self._unneeded(part, name, "rename")
        if new.lower() != name.lower():
            self._free(part, new, part.place_of(new, last=True), kind.value, optional=False)
        self.world.relations.pop(name.lower())
        self._in_handlers(name, new)
        self._add(replace(found, name=new))


def _is_view(relation: KnownRelation | None) -> bool:
    return relation is not None and relation.kind is Kind.VIEW


def _made(made: st.Update | st.Delete | st.Merge, table: KnownRelation) -> Query | None:
    """The query that carries the statement out, which names all that it reads; `None` if its columns are wrong."""
    if table.columns is None:
        return None
    columns, key = list(table.columns), list(table.key)
    try:
        match made:
            case st.Update():
                return dml.update_query(made, columns, key)
            case st.Delete():
                return dml.delete_query(made, columns, key)
            case st.Merge():
                return dml.merge_query(made, columns, key)
            case _:
                assert_never(made)
    except EblaError:
        return None
