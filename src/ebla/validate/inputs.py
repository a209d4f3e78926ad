"""Names in a view's definition: its own, and those of the relations that it reads."""

from __future__ import annotations

from dataclasses import replace

from ebla.base.issue import Code, Issue, did_you_mean
from ebla.model.relation import Kind
from ebla.sql import statements as st
from ebla.sql.query import TableRef
from ebla.validate.facts import RelationFacts, ViewStep
from ebla.validate.state import Definition, path_between
from ebla.validate.walk import Walk


def create_view(walk: Walk, made: st.CreateView, *, explained: bool = False) -> None:
    if not explained:
        if made.if_not_exists and made.name.lower() in walk.world.relations:
            return  # nothing happens, whatever the query says
        taken = walk.world.relations.get(made.name.lower())
        walk.free(made.name, made.name_at, "view", optional=made.or_replace and _is_view(taken))
        if made.or_replace and _is_view(taken):
            walk.unneeded(made.name, "replace")
    step = ViewStep(item=walk.item, create=made, inputs={}, explained=explained)
    for name in (*made.columns, *made.primary_key):
        walk.column_name(name)
    for ref in made.query.refs:
        issue = _input_issue(walk, step, ref, made.name if not explained or made.or_replace else None)
        walk.issues += [issue] if issue is not None else []
    reads = dict.fromkeys(ref.name.lower() for ref in made.query.refs)
    inputs = {n: walk.world.relations[n] for n in reads if n in walk.world.relations}
    walk.views.append(replace(step, inputs=inputs))
    if not explained and (made.or_replace or made.name.lower() not in walk.world.relations):
        walk.world.add(
            RelationFacts(
                name=made.name,
                kind=Kind.VIEW,
                columns=None,
                reads=frozenset(reads),
                query=made.query,
                made_by=walk.item.number,
            )
        )


def _input_issue(walk: Walk, step: ViewStep, ref: TableRef, view: str | None) -> Issue | None:
    name = ref.name
    at = ref.start + (step.create.query.text[ref.start : ref.end].lower().rfind(name.lower()) if ref.select else 0)
    if len(ref.parts) > 1:
        message = f"expected a table or a view as input, found the system table {'.'.join(ref.parts)}"
        return step.query_issue(Code.SYSTEM_INPUT, at, message, "read system tables with a query, not with a view")
    if ref.version is not None or ref.timestamp is not None:
        message = f"expected the present of {name}, found a version of it"
        return step.query_issue(Code.VERSIONED_INPUT, at, message, "leave out AS OF: a view follows its inputs")
    if view is not None and name.lower() == view.lower():
        if view.lower() in walk.world.relations and not step.create.or_replace:
            return None  # the name is taken, which has an issue already
        message = f"expected inputs other than the view itself, found {name}"
        return step.query_issue(Code.DEPENDENCY_CYCLE, at, message, "read the tables that the view is made of")
    relation = walk.world.relations.get(name.lower())
    if relation is not None and relation.kind is Kind.INDEX:
        message = f"expected a table or a view as input, found the index {name}"
        return step.query_issue(Code.SYSTEM_INPUT, at, message, "read what it indexes")
    if relation is not None:
        return None
    later = walk.later.get(name.lower())
    if later is not None and later.number > walk.item.number:
        return _later_issue(walk, step, ref, at, later, view)
    message = f"table {name}: expected a table of this name, found none"
    hint = did_you_mean(name, [n for n in walk.world.names() if n != view], "tables")
    return step.query_issue(Code.UNKNOWN_TABLE, at, message, hint)


def _later_issue(walk: Walk, step: ViewStep, ref: TableRef, at: int, later: Definition, view: str | None) -> Issue:
    reads = {n: r.reads for n, r in walk.world.relations.items()} | {n: d.reads for n, d in walk.later.items()}
    path = None if view is None else path_between(reads, ref.name.lower(), view.lower())
    if path is not None:
        message = f"expected views that do not read each other, found {' -> '.join([str(view), *path])}"
        hint = "take the part that both need into a view of its own"
        return step.query_issue(Code.DEPENDENCY_CYCLE, at, message, hint)
    message = f"table {ref.name}: expected it created before it is read, found it in line {later.line}"
    return step.query_issue(Code.DEFINED_LATER, at, message, "move that statement before this one")


def _is_view(relation: RelationFacts | None) -> bool:
    return relation is not None and relation.kind is Kind.VIEW
