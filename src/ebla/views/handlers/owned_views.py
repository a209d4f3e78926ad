"""Views with the handlers that own them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection

from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.model.handlers import Handler, held, owners, with_inputs
from ebla.model.relation import Relation
from ebla.relations import handlers as stored
from ebla.relations import views as definition
from ebla.relations.readers import among
from ebla.relations.views import View
from ebla.views.epoch.attempt import ViewInputs
from ebla.views.handlers import dictionary, dictionary_views


def relations_of(connection: Connection, handler: str) -> dict[str, Relation]:
    """The relations of a handler's views, by name in lower case."""
    return {r.name.lower(): r for r, h in stored.owned(connection) if h.name.lower() == handler.lower()}


def dictionaries_of(
    connection: Connection, views: Mapping[str, tuple[View, Handler]]
) -> dict[str, dict[str, RelationId]]:
    """Of each view that reads dictionaries, which ones, by the view's name in lower case."""
    return {v.relation.name.lower(): inputs for v, _, inputs in among(connection, views.values())}


def chosen_views(connection: Connection, asked: set[str]) -> dict[str, tuple[RelationId | None, Handler]]:
    """The views that a request is about: which one is waited for (`None`: it is being built), and its handler."""
    owned = {relation.name.lower(): (relation, handler) for relation, handler in stored.owned(connection)}
    inputs = {n: definition.inputs_of_relation(relation) for n, (relation, _) in owned.items()}
    wanted = with_inputs(inputs, asked or inputs)
    off = {n for n in wanted if n not in asked and not owned[n][1].should_run}
    views = definition.all_views(connection) if off else []
    left_out = off & {view.relation.name.lower() for view in views if _built(view)}
    online = reads.built_online(connection)
    return {n: (None if owned[n][0].id in online else owned[n][0].id, owned[n][1]) for n in wanted if n not in left_out}


def views_with_handlers(connection: Connection) -> dict[str, tuple[View, Handler]]:
    """Every view with its handler, by name in lower case, each behind the views that it reads."""
    views = definition.all_views(connection)
    handler_of = owners([v.relation.id for v in views], stored.handlers(connection))
    return {v.relation.name.lower(): (v, handler_of[v.relation.id]) for v in views}


def with_their_inputs(
    connection: Connection, views: Mapping[str, tuple[View, Handler]], names: Collection[str]
) -> list[ViewInputs]:
    """Some views with their inputs, in the order of `views`."""
    chosen = [view for name, (view, _) in views.items() if name in names]
    return [(view, {n: reads.relation(connection, n) for n in view.inputs}) for view in chosen]


def _built(view: View) -> bool:
    return view.position is not None and view.position.built


def without_rows(views: Mapping[str, tuple[View, Handler]], mine: Collection[str]) -> set[str]:
    """Views that nothing can be computed from: not built, and not about to be in an epoch of `mine`."""
    return {n for n, (v, _) in views.items() if not _built(v) and (n not in mine or v.position is not None)}


def held_versions(connection: Connection, view: View, handler: Handler, newest: Version) -> dict[str, Version]:
    """The versions at which an epoch of a handler reads the dictionaries of one of its views."""
    if not handler.batch:
        return {}
    ids = {n: reads.relation(connection, n).id for n in view.inputs}
    mine = {n: i for n, i in ids.items() if i in handler.batch}
    return held(dictionary_views.batch_inputs(connection, view, mine, dictionary.GatheredPosition()), newest)
