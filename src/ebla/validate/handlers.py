"""What can be wrong with CREATE HANDLER, in a given state of the warehouse."""

from __future__ import annotations

from collections.abc import Mapping

from ebla.base.issue import Code, Issue, did_you_mean
from ebla.model.handlers import DEFAULT
from ebla.model.relation import Kind, misnamed, unprinted
from ebla.sql import statements as st
from ebla.validate.facts import Handlers, RelationFacts, ScriptItem


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
