"""How fresh views are costs one statement, and is what questions one by one would answer, on both databases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from sqlalchemy import delete, event, update

from ebla.base.ids import RelationId, Version
from ebla.catalog import history, memory, reads
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.plans import Plan
from ebla.model.relation import Kind
from ebla.query.view_freshness import fresh, reached
from ebla.relations.freshness import Freshness, freshness, look_at_views
from ebla.relations.views import advanced, progress_name
from support.catalogs import SECOND_US, Clock, add, commit, create, exclusively, new_relation, relation, run


def make_view(catalog: Catalog, name: str, **read: int) -> RelationId:
    """A view that is built, and has read its inputs at these versions."""
    ids = tuple(relation(catalog, one).id for one in read)
    text = "SELECT 1 AS n FROM " + ", ".join(f"`{one}`" for one in read)
    exclusively(catalog, replace(new_relation(name, kind=Kind.VIEW), options={"query": text}, reads=ids))
    view = relation(catalog, name).id
    at = Version(max(read.values()))
    position = advanced(
        None, applied_version=at, read=read, plan=Plan.INCREMENTAL, reason='"read": {"x": 1}', gained=1, lost=0,
        seconds=0.1,
    )  # fmt: skip
    commit(catalog, c.SetProgress(name=progress_name(view), value=position.text()), c.MarkBuilt(view=view))
    return view


def write(catalog: Catalog, table: RelationId) -> Version:
    """As writers do: the history says of which relation the commit is."""
    decision = c.Decision(reason="write", relation=table, updates=(c.AddRuns(runs=(run(table),)),))
    return catalog.commit(decision).version


def look(catalog: Catalog) -> Mapping[str, Freshness]:
    with catalog.reading() as connection:
        return {one.name: one for one in freshness(connection, catalog.clock())}


def statements_of(catalog: Catalog) -> list[str]:
    sent: list[str] = []
    event.listen(catalog.engine, "before_cursor_execute", lambda _c, _k, text, *_: sent.append(text))
    return sent


def test_one_statement_says_how_fresh_all_views_are(catalog: Catalog, clock: Clock):
    inputs = [f"input {number}" for number in range(5)]
    for name in inputs:
        create(catalog, name)
    for number in range(4):
        make_view(catalog, f"view {number}", **dict.fromkeys(inputs, int(catalog.version())))
    view = relation(catalog, "view 0")
    sent = statements_of(catalog)
    look(catalog)  # what is remembered from then on
    tables = {name: relation(catalog, name).id for name in inputs}
    for table in tables.values():
        written = add(catalog, run(table))
        clock.advance(SECOND_US)
        sent.clear()
        assert {one.behind > 0 for one in look(catalog).values() if one.behind is not None} == {True}
        assert len([text for text in sent if not text.startswith("BEGIN")]) == 1, sent
        sent.clear()
        with catalog.reading() as connection:
            at = look_at_views(connection)
            assert reads.current_version(connection) == written
            assert reached(connection, reads.relation(connection, view.name), at, written) is not None
        assert len([text for text in sent if not text.startswith("BEGIN")]) == 1, sent


def test_the_first_write_that_was_not_read_counts(catalog: Catalog, clock: Clock):
    create(catalog, "orders")
    create(catalog, 'it"s {odd}')
    orders, odd = relation(catalog, "orders"), relation(catalog, 'it"s {odd}')
    first = add(catalog, run(orders.id))
    make_view(catalog, "card", **{"orders": first, 'it"s {odd}': first})
    assert (look(catalog)["card"].behind, look(catalog)["card"].age_s) == (0, 0)
    exclusively(catalog, c.TruncateRelation(relation=odd.id))
    cut = int(catalog.version())
    clock.advance(10 * SECOND_US)
    newest = add(catalog, run(orders.id))
    clock.advance(5 * SECOND_US)
    found = look(catalog)["card"]
    assert found.behind == newest - first
    assert found.age_s == pytest.approx(15, abs=0.01)
    with catalog.reading() as connection:
        at = look_at_views(connection)
        card = reads.relation(connection, "card")
        assert reached(connection, card, at, cut - 1) is None
        assert reached(connection, card, at, cut) == f"version {first}"
        answer = fresh(connection, card)
    assert answer is not None
    version, age_s = answer.now(catalog.clock())
    assert version == first
    assert age_s == pytest.approx(15, abs=0.01)


@pytest.mark.parametrize("damage", ["{", "[]", '{"read": 7}', '{"read": {"orders": "x"}}', "no JSON"])
def test_a_damaged_position_is_the_trouble_of_its_view_alone(catalog: Catalog, damage: str):
    create(catalog, "orders")
    first = add(catalog, run(relation(catalog, "orders").id))
    bad = make_view(catalog, "bad", orders=first)
    make_view(catalog, "good", orders=first)
    newest = add(catalog, run(relation(catalog, "orders").id))
    with catalog.writing() as connection:
        mine = s.progress.c.name == progress_name(bad)
        connection.execute(update(s.progress).where(mine).values(value=damage))
    found = look(catalog)
    assert found["good"].behind == newest - first
    assert found["bad"].status == "failed"


def test_an_input_of_which_a_position_says_nothing_is_unread(catalog: Catalog):
    create(catalog, "orders")
    create(catalog, "other")
    first = add(catalog, run(relation(catalog, "orders").id))
    other = add(catalog, run(relation(catalog, "other").id))
    view = make_view(catalog, "card", orders=first, other=other)
    with catalog.writing() as connection:
        mine = s.progress.c.name == progress_name(view)
        [text] = connection.execute(s.progress.select().with_only_columns(s.progress.c.value).where(mine)).scalars()
        value = {**json.loads(text), "read": {"orders": first}}
        connection.execute(update(s.progress).where(mine).values(value=json.dumps(value, sort_keys=True)))
    assert look(catalog)["card"].behind == other


def test_a_write_whose_commit_was_trimmed_has_an_age(catalog: Catalog, clock: Clock):
    create(catalog, "orders")
    orders = relation(catalog, "orders").id
    first = add(catalog, run(orders))
    make_view(catalog, "card", orders=first)
    second = add(catalog, run(orders))
    clock.advance(10 * SECOND_US)
    last = add(catalog, run(orders))
    clock.advance(5 * SECOND_US)
    with catalog.writing() as connection:
        history.trim(connection, last, [])
    assert look(catalog)["card"].age_s == pytest.approx(15, abs=0.01)
    with catalog.writing() as connection:
        connection.execute(delete(s.history).where(s.history.c.version == second))
    assert look(catalog)["card"].age_s == pytest.approx(5, abs=0.01)


def test_a_write_that_vacuum_has_forgotten_is_unread_all_the_same(catalog: Catalog, clock: Clock):
    """A view that failed or is switched off is not fresh because the files of what it has not read are gone."""
    create(catalog, "orders")
    create(catalog, "idle")
    orders, idle = relation(catalog, "orders").id, relation(catalog, "idle").id
    first, quiet = write(catalog, orders), write(catalog, idle)
    make_view(catalog, "late", orders=first)
    make_view(catalog, "good", idle=quiet)
    clock.advance(10 * SECOND_US)
    missed = write(catalog, orders)
    for name, table in (("orders", orders), ("idle", idle)):
        catalog.commit(c.Decision(reason=f"compact {name}", relation=table, updates=(), work=c.WorkKind.COMPACTION))
    folded = int(catalog.version())
    with catalog.writing() as connection:
        connection.execute(delete(s.runs))
        connection.execute(update(s.relations).values(horizon=folded))
        memory.reshape(connection)
        history.trim(connection, Version(folded), history.last_of_each(connection, Version(folded)))
    found = look(catalog)
    assert (found["late"].behind, found["good"].behind) == (missed - first, 0)
    assert found["late"].age_s is not None
    assert found["good"].age_s == 0
    with catalog.reading() as connection:
        at = look_at_views(connection)
        assert reached(connection, reads.relation(connection, "late"), at, missed) == f"version {first}"
        assert reached(connection, reads.relation(connection, "good"), at, missed) is None
