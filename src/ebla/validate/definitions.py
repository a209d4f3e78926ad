"""Names in statements that create, alter, rename and drop tables, views, indexes and handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from ebla.algebra.nodes import NotUnderstood
from ebla.base.issue import Code, Issue, did_you_mean
from ebla.errors import EblaError
from ebla.model.handlers import DEFAULT
from ebla.model.relation import Kind, misnamed, unprinted
from ebla.sql import statements as st
from ebla.validate.facts import Columns, Handlers, RelationFacts, ScriptItem
from ebla.validate.inputs import create_view
from ebla.validate.queries import result_columns
from ebla.validate.rows import read
from ebla.validate.views import tree_of
from ebla.validate.walk import Walk
from ebla.values import types
from ebla.values.grammar import misnamed_field

Creation = st.CreateTable | st.CreateView | st.CreateHandler | st.CreateIndex
Removal = st.DropTable | st.DropView | st.DropHandler | st.DropIndex | st.CancelBuild
Definition = Creation | Removal | st.RenameTable | st.RenameView | st.ColumnStatement


def define(walk: Walk, statement: Definition) -> None:
    world = walk.world
    match statement:
        case st.CreateTable():
            _create_table(walk, statement)
        case st.CreateView():
            create_view(walk, statement)
        case st.CreateHandler(name=name, views=views, inputs=inputs):
            walk.issues += handler_issues(walk.item, statement, world.relations, world.handlers)
            world.handlers.setdefault(name.lower(), (views, tuple(i.name for i in inputs)))
        case st.CreateIndex():
            _create_index(walk, statement)
        case st.DropTable(name=name, if_exists=optional, cascade=cascade):
            _drop(walk, name, Kind.TABLE, optional=optional, cascade=cascade)
        case st.DropView(name=name, if_exists=optional, cascade=cascade):
            _drop(walk, name, Kind.VIEW, optional=optional, cascade=cascade)
        case st.CancelBuild(name=name, if_exists=optional):
            _drop(walk, name, Kind.VIEW, optional=optional, cascade=False)
        case st.DropHandler(name=name, if_exists=optional):
            if walk.handler(name, optional=optional):
                del world.handlers[name.lower()]
        case st.DropIndex(name=name, if_exists=optional):
            if walk.index(name, optional=optional):
                del world.relations[name.lower()]
        case st.RenameTable(table=name, new_name=new):
            _rename(walk, name, new, Kind.TABLE)
        case st.RenameView(name=name, new_name=new):
            _rename(walk, name, new, Kind.VIEW)
        case st.AddColumns() | st.DropColumns() | st.RenameColumn() | st.AlterColumnType():
            _alter(walk, statement)
        case _:
            assert_never(statement)


# ---- tables ---------------------------------------------------------------------------------------------


def _create_table(walk: Walk, made: st.CreateTable) -> None:
    at = walk.item.place_of(made.name)
    walk.free(made.name, at, "table", made.if_not_exists or made.or_replace)
    if made.or_replace and made.name.lower() in walk.world.relations:
        _drop(walk, made.name, Kind.TABLE, optional=True, cascade=False)
    if made.query is not None:
        read(walk, made.query)
    columns: dict[str, str | None] = {}
    for spec in made.columns:
        walk.column_name(spec.name)
        columns[spec.name] = _type(walk, spec)
    for key in made.primary_key:
        kind = columns.get(key)
        if kind is not None and not types.is_key_type(kind):
            message = f"{made.name}.{key}: expected a type that can be ordered for a key, found {kind}"
            hint = "use a key of numbers, strings, dates or times"
            walk.report(Code.UNSUPPORTED_TYPE, walk.item.place_of(key, last=True), message, hint)
    if made.name.lower() in walk.world.relations:
        return
    made_columns: Columns | None = (
        columns if made.query is None else result_columns(made.query.text, walk.world.relations)
    )
    table = RelationFacts(
        name=made.name, kind=Kind.TABLE, columns=made_columns, key=made.primary_key, made_by=walk.item.number
    )
    for check in made.checks:
        walk.expression(table, check.text)
    walk.world.add(table)


def _type(walk: Walk, spec: st.ColumnSpec) -> str | None:
    at = walk.item.source.text.find(spec.type, walk.item.place_of(spec.name) + len(spec.name))
    try:
        kind = types.canonical(spec.type)
        if (wrong := misnamed_field(kind)) is not None:
            message = f"column {spec.name!r}: field {wrong[0]!r}: {wrong[1]}"
            walk.report(Code.RESERVED_NAME, max(at, 0), message, "choose another name")
        return kind
    except EblaError as error:
        message, _, hint = str(error).partition("; ")
        hint = hint or "see docs/reference/sql.md for the types"
        walk.report(Code.UNSUPPORTED_TYPE, max(at, 0), message, hint)
        return None


def _alter(walk: Walk, change: st.ColumnStatement) -> None:
    relation = walk.relation(change.table)
    if relation is None or relation.columns is None:
        return
    if relation.kind is not Kind.TABLE:
        walk.not_a_table(relation)
        return
    columns = dict(relation.columns)
    spelled = {c.lower(): c for c in columns}
    match change:
        case st.AddColumns(columns=specs, if_not_exists=optional):
            for spec in specs:
                if optional and spec.name.lower() in spelled:
                    continue
                walk.column_name(spec.name)
                if spec.name.lower() in spelled:
                    message = f"{relation.name}: expected a new column, found {spec.name} there already"
                    at = walk.item.place_of(spec.name, last=True)
                    walk.report(Code.DUPLICATE_COLUMN, at, message, "give it another name")
                columns[spec.name] = _type(walk, spec)
        case st.DropColumns(columns=names, cascade=cascade):
            for name in names:
                found = walk.has_column(relation, name) if cascade else _has_unneeded(walk, relation, name)
                if found:
                    del columns[spelled[name.lower()]]
        case st.RenameColumn(column=name, new_name=new):
            if _has_unneeded(walk, relation, name):
                if new.lower() in spelled and new.lower() != name.lower():
                    message = f"{relation.name}: expected a new column name, found {new} there already"
                    at = walk.item.place_of(new, last=True)
                    walk.report(Code.DUPLICATE_COLUMN, at, message, "choose another name")
                columns = {new if c.lower() == name.lower() else c: kind for c, kind in columns.items()}
                key = tuple(new if k.lower() == name.lower() else k for k in relation.key)
                relation = replace(relation, key=key)
        case st.AlterColumnType(column=name, type=kind):
            if _has_unneeded(walk, relation, name):
                columns[spelled[name.lower()]] = _type(walk, st.ColumnSpec(name=name, type=kind))
        case _:
            assert_never(change)
    walk.world.add(replace(relation, columns=columns))


def _has_unneeded(walk: Walk, relation: RelationFacts, name: str) -> bool:
    """Whether a table has a column. One that a view needs is reported."""
    if not walk.has_column(relation, name):
        return False
    readers = [walk.world.relations[r.lower()] for r in walk.world.readers(relation.name)]
    using = [r.name for r in readers if _uses(walk, r, relation.name, name)]
    if using:
        message = f"{relation.name} ({name}): expected that no view needs it, found {', '.join(using)}"
        walk.report(Code.IN_USE, walk.item.place_of(name), message, "drop them first")
    return True


def _uses(walk: Walk, view: RelationFacts, table: str, column: str) -> bool:
    """Whether a view certainly uses a column. What only Spark can tell is an error when the statement runs."""
    inputs = {n: r.shape_types() for n, r in walk.world.relations.items() if n in view.reads}
    typed = {n: kinds for n, kinds in inputs.items() if kinds is not None}
    if view.query is None or len(typed) < len(view.reads):
        return False
    try:
        used = tree_of(view.query, typed).used.get(table.lower(), frozenset())
        return column.lower() in {name.lower() for name in used}
    except NotUnderstood:
        return False


# ---- indexes --------------------------------------------------------------------------------------------


def _create_index(walk: Walk, made: st.CreateIndex) -> None:
    taken = walk.world.relations.get(made.name.lower())
    if taken is not None:
        if not made.if_not_exists:
            message = f"index {made.name}: expected a free name, found {taken.kind.named} of that name"
            hint = "drop it first, choose another name, or write IF NOT EXISTS to keep it"
            walk.report(Code.DUPLICATE_INDEX, walk.item.place_of(made.name), message, hint)
        return
    base = walk.relation(made.table)
    if base is None:
        return
    if base.kind is Kind.INDEX:
        walk.not_a_table(base)
        return
    for item in made.items:
        walk.expression(base, item.text, item.at)
    for name in made.include:
        walk.has_column(base, name)
    if made.where is not None:
        walk.expression(base, made.where)
    walk.world.add(
        RelationFacts(name=made.name, kind=Kind.INDEX, columns=None, made_by=walk.item.number, base=made.table.lower())
    )


# ---- any ------------------------------------------------------------------------------------------------


def _drop(walk: Walk, name: str, kind: Kind, *, optional: bool, cascade: bool) -> None:
    if kind is Kind.VIEW:
        found = walk.view(name, optional=optional)
    elif optional and name.lower() not in walk.world.relations:
        return
    else:
        found = walk.relation(name)
        if found is not None and found.kind is not kind:
            walk.not_a_table(found)
            return
    if found is None:
        return
    if not cascade:
        walk.unneeded(name, "drop")
    walk.world.remove(name)


def _rename(walk: Walk, name: str, new: str, kind: Kind) -> None:
    found = walk.view(name) if kind is Kind.VIEW else walk.relation(name)
    if found is None:
        return
    walk.unneeded(name, "rename")
    if new.lower() != name.lower():
        walk.free(new, walk.item.place_of(new, last=True), kind.value, optional=False)
    walk.world.relations.pop(name.lower())
    walk.world.rename_in_handlers(name, new)
    walk.world.add(replace(found, name=new))


def handler_issues(
    item: ScriptItem, made: st.CreateHandler, relations: Mapping[str, RelationFacts], handlers: Handlers
) -> list[Issue]:
    """Keys of `relations` and `handlers` are in lower case."""
    if made.if_not_exists and made.name.lower() in handlers:
        return []
    views = _views(item, made, relations, handlers)
    return [*_name(item, made, handlers), *views, *_inputs(item, made, relations)]


def _name(item: ScriptItem, made: st.CreateHandler, handlers: Handlers) -> list[Issue]:
    issues = []
    others = (made.consumer, *(one.changefeed for one in made.inputs))
    wrong = misnamed(made.name) or next((found for name in others if name and (found := unprinted(name))), None)
    if wrong is not None or made.name.lower() == DEFAULT:
        message = f"handler {made.name!r}: {wrong or f'expected another name than {DEFAULT}, which every catalog has'}"
        issues.append(item.issue(Code.RESERVED_NAME, made.name_at, message, "choose another name"))
    if made.name.lower() in handlers:
        message = f"handler {made.name}: expected a free name, found a handler of that name"
        hint = "drop it first, choose another name, or write IF NOT EXISTS to keep it"
        issues.append(item.issue(Code.DUPLICATE_HANDLER, made.name_at, message, hint))
    return issues


def _views(
    item: ScriptItem, made: st.CreateHandler, relations: Mapping[str, RelationFacts], handlers: Handlers
) -> list[Issue]:
    if not made.views:
        message = f"handler {made.name}: expected at least one view, found none"
        return [item.issue(Code.HANDLER_WITHOUT_VIEWS, made.name_at, message, "add PROCESS and the names of views")]
    owners = {v.lower(): h for h, (views, _) in handlers.items() for v in views if h != made.name.lower()}
    issues: list[Issue] = []
    seen: set[str] = set()
    names = [r.name for r in relations.values() if r.kind is Kind.VIEW]
    for view, at in zip(made.views, made.view_places, strict=True):
        low = view.lower()
        found = relations.get(low)
        if low in seen:
            message = f"handler {made.name}: expected each view once, found {view} twice"
            issues.append(item.issue(Code.REPEATED_VIEW, at, message, "name it once"))
        elif found is None or found.kind is not Kind.VIEW:
            has = "none" if found is None else f"a {found.kind}"
            message = f"view {view}: expected a view of this name, found {has}"
            issues.append(item.issue(Code.UNKNOWN_VIEW, at, message, did_you_mean(view, names, "views")))
        elif low in owners:
            message = f"view {view}: expected a view without a handler, found it in handler {owners[low]}"
            hint = f"leave it out, or drop handler {owners[low]} first"
            issues.append(item.issue(Code.VIEW_IN_TWO_HANDLERS, at, message, hint))
        seen.add(low)
    return issues


def _inputs(item: ScriptItem, made: st.CreateHandler, relations: Mapping[str, RelationFacts]) -> list[Issue]:
    if not made.inputs:
        message = f"handler {made.name}: expected at least one input, found none"
        hint = "add INPUT t AS STREAM for each table that the views read"
        return [item.issue(Code.HANDLER_WITHOUT_INPUTS, made.name_at, message, hint)]
    views = {v.lower(): at for v, at in zip(made.views, made.view_places, strict=True)}
    read = {v: relations[v].reads for v in views if v in relations}
    listed: set[str] = set()
    issues: list[Issue] = []
    for given in made.inputs:
        low = given.name.lower()
        if low in listed:
            message = f"handler {made.name}: expected each input once, found {given.name} twice"
            issues.append(item.issue(Code.DUPLICATE_INPUT, given.at, message, "name it once"))
        elif low not in relations:
            message = f"table {given.name}: expected a table of this name, found none"
            hint = did_you_mean(given.name, [r.name for r in relations.values()], "tables")
            issues.append(item.issue(Code.UNKNOWN_TABLE, given.at, message, hint))
        elif made.views and not any(low in inputs for inputs in read.values()):
            message = f"input {given.name}: expected a table that a view of the handler reads, found that none does"
            issues.append(item.issue(Code.UNUSED_INPUT, given.at, message, "leave it out, or add the view to PROCESS"))
        listed.add(low)
    for view, at in views.items():
        # What another view of the handler computes comes with it.
        for missing in sorted(read.get(view, frozenset()) - listed - set(views)):
            message = f"view {relations[view].name}: expected all its inputs in the handler, found {missing} missing"
            issues.append(item.issue(Code.MISSING_INPUT, at, message, f"add INPUT {missing} AS STREAM, or AS BATCH"))
    return issues
