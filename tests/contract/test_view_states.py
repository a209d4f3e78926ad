"""The states of views in the catalog: only steps that there are, and catalogs of the release before."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import delete, select, text, update

from ebla.base.ids import RelationId, Version
from ebla.catalog import build_tasks, view_states
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.catalog.view_states import StoredState
from ebla.errors import ConflictError, Culprit
from ebla.model import changes as c
from ebla.model.failure import Failure
from ebla.model.lifecycle.view import LIFE, ViewState
from ebla.model.relation import Kind
from ebla.model.tasks import Build
from ebla.relations.views import Position, progress_name
from support.catalogs import commit, create, dump, exclusively, new_relation, relation

FAILURE = Failure(code="DIVIDE_BY_ZERO", message="a row", culprit=Culprit("orders", "id = 7"), at=4)


def make_view(catalog: Catalog, name: str, *, building: bool = True) -> RelationId:
    exclusively(catalog, new_relation(name, kind=Kind.VIEW))
    view = relation(catalog, name).id
    if building:
        commit(catalog, c.CreateBuild(build=Build(view=view, base=RelationId(1)), tasks=()))
    return view


def state_of(catalog: Catalog, view: RelationId) -> StoredState | None:
    with catalog.reading() as connection:
        return view_states.all_states(connection).get(view)


def test_a_view_begins_building_and_leaves_nothing(catalog: Catalog):
    create(catalog, "orders")
    view = make_view(catalog, "card")
    found = state_of(catalog, view)
    assert found is not None
    assert (found.state, found.failure) == (ViewState.BUILDING, None)
    exclusively(catalog, c.DropRelation(relation=view))
    assert state_of(catalog, view) is None


def test_a_failure_is_kept_typed_until_the_next_step(catalog: Catalog):
    view = make_view(catalog, "card")
    version = commit(catalog, c.SetViewState(view=view, state=ViewState.BUILD_FAILED, failure=FAILURE)).version
    assert state_of(catalog, view) == StoredState(state=ViewState.BUILD_FAILED, since=version, failure=FAILURE)
    version = commit(catalog, c.SetViewState(view=view, state=ViewState.BUILDING)).version
    assert state_of(catalog, view) == StoredState(state=ViewState.BUILDING, since=version, failure=None)
    commit(catalog, c.MarkBuilt(view=view))
    found = state_of(catalog, view)
    assert found is not None
    assert found.state is ViewState.READY


@pytest.mark.parametrize("before", list(ViewState))
def test_only_steps_that_there_are(catalog: Catalog, before: ViewState):
    view = make_view(catalog, "card")
    with catalog.writing() as connection:
        connection.execute(update(s.view_states).values(state=before.value))
    commit(catalog, c.AlterBuild(view=view, rows_per_minute=None, chunk_rows=None))  # so that nothing remembered stays
    for after in ViewState:
        if LIFE.allows(before, after):
            continue
        unchanged = dump(catalog)
        with pytest.raises(ConflictError, match=f"view {view}: expected a state before {after}, found {before}"):
            commit(catalog, c.SetViewState(view=view, state=after))
        assert dump(catalog) == unchanged
    if not LIFE.allows(before, ViewState.READY):
        with pytest.raises(ConflictError, match="expected a state before ready"):
            commit(catalog, c.MarkBuilt(view=view))


def test_a_catalog_of_the_release_before_gets_the_states_that_its_positions_say(catalog: Catalog):
    """There a position said whether its view had failed, and two tables which views were built."""
    create(catalog, "orders")
    stored: dict[str, dict[str, object]] = {
        "building": {"status": "ready"},
        "stuck": {"status": "failed", "message": "a row", "applied_version": 0},
        "ready": {"status": "ready", "message": None},
        "failed": {"status": "failed", "message": "division by zero; found at orders (id = 7)", "tried": {"orders": 3}},
        "early": {"status": "ready", "message": None},
        "damaged": {},
    }
    views = {name: make_view(catalog, name, building=name in ("building", "stuck")) for name in [*stored, "unread"]}
    at: dict[str, Version] = {}
    for name, said in stored.items():
        position = {**json.loads(Position(applied_version=Version(3), read={"orders": 3}).text()), **said}
        value = json.dumps(position) if said else "{"
        at[name] = commit(catalog, c.SetProgress(name=progress_name(views[name]), value=value)).version
    with catalog.writing() as connection:
        for name in ("ready", "failed", "damaged"):  # "early" is from before there were building tasks
            connection.execute(s.built_views.insert(), {"view_id": views[name], "built_version": 3})
        s.view_states.drop(connection)
        connection.execute(text("ALTER TABLE troubles DROP COLUMN culprit_relation"))
        connection.execute(delete(s.migrations).where(s.migrations.c.number >= 10))
    again = Catalog.open(catalog.where, create=False)
    with again.reading() as connection:
        found = view_states.all_states(connection)
        built = build_tasks.built(connection)
        texts = {row.name: row.value for row in connection.execute(select(s.progress))}
        times = {row.version: row.committed_at for row in connection.execute(select(s.history))}
    again.close()
    assert {name: found[view].state for name, view in views.items()} == {
        "building": ViewState.BUILDING,
        "stuck": ViewState.BUILD_FAILED,
        "ready": ViewState.READY,
        "failed": ViewState.FAILED,
        "early": ViewState.READY,
        "damaged": ViewState.READY,
        "unread": ViewState.BUILDING,
    }
    failure = Failure(code="UNKNOWN", message=str(stored["failed"]["message"]), at=times[at["failed"]])
    assert found[views["failed"]] == StoredState(state=ViewState.FAILED, since=at["failed"], failure=failure)
    assert set(built) == {views[name] for name in ("ready", "failed", "early", "damaged")}
    assert texts[progress_name(views["damaged"])] == "{"
    position = json.loads(texts[progress_name(views["failed"])])
    assert (position["tried"], position["read"]) == ({"orders": 3}, {"orders": 3})
    assert not {"status", "message"} & set(position)
