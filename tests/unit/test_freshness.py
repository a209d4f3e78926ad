"""How fresh views are, their counters and metrics, from catalog rows alone: no Spark, a clock that stands still."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ebla.api import system
from ebla.api.metrics import Metrics
from ebla.base.ids import RelationId, Version
from ebla.base.settings import load
from ebla.catalog.store import Catalog
from ebla.cli.main import run as run_command
from ebla.model import changes as c
from ebla.model.failure import Failure
from ebla.model.handlers import Handler, Input
from ebla.model.plans import Plan
from ebla.model.relation import Kind
from ebla.relations import handlers as stored
from ebla.relations.freshness import Freshness, freshness
from ebla.relations.views import Position, advanced, progress_name
from ebla.tables.context import Context
from ebla.views.epoch.attempt import Epoch
from support.catalogs import SECOND_US, Clock, add, commit, create, exclusively, new_relation, put_nodes, relation, run


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(tmp_path: Path, clock: Clock) -> Iterator[Catalog]:
    opened = Catalog.open(str(tmp_path), clock=clock)
    put_nodes(opened, "node1")
    create(opened, "orders")
    create(opened, "other")
    yield opened
    opened.close()


def make_view(catalog: Catalog, name: str, *inputs: str) -> RelationId:
    ids = tuple(relation(catalog, i).id for i in inputs)
    text = "SELECT 1 AS n FROM " + ", ".join(inputs)
    made = replace(new_relation(name, kind=Kind.VIEW), options={"query": text}, reads=ids)
    exclusively(catalog, made)
    return relation(catalog, name).id


def epoch(
    catalog: Catalog, view: RelationId, before: Position | None, plan: Plan = Plan.INCREMENTAL, **read: int
) -> Position:
    position = advanced(
        before,
        applied_version=Version(max(read.values())),
        read=read,
        plan=plan,
        reason=None,
        gained=3,
        lost=1,
        seconds=0.5,
    )
    built = () if before is not None else (c.MarkBuilt(view=view),)
    commit(catalog, c.SetProgress(name=progress_name(view), value=position.text()), *built)
    return position


def look(catalog: Catalog, name: str) -> Freshness:
    with catalog.reading() as connection:
        return next(f for f in freshness(connection, catalog.clock()) if f.name == name)


def test_a_view_that_is_not_built_has_no_age(catalog: Catalog):
    make_view(catalog, "card", "orders")
    found = look(catalog, "card")
    assert (found.status, found.behind, found.age_s, found.handler) == ("building", None, None, "default")
    assert found.row()["applied_version"] is None


def test_age_counts_from_the_oldest_write_that_was_not_read(catalog: Catalog, clock: Clock):
    view = make_view(catalog, "card", "orders")
    orders, other = relation(catalog, "orders").id, relation(catalog, "other").id
    first = add(catalog, run(orders))
    at = epoch(catalog, view, None, orders=first)
    clock.advance(100 * SECOND_US)
    add(catalog, run(other))
    found = look(catalog, "card")
    assert (found.age_s, found.behind) == (0, 0)  # nothing that it reads was written
    second = add(catalog, run(orders))
    clock.advance(10 * SECOND_US)
    third = add(catalog, run(orders))
    clock.advance(5 * SECOND_US)
    found = look(catalog, "card")
    assert found.age_s == pytest.approx(15, abs=0.01)
    assert found.behind == third - first
    at = epoch(catalog, view, at, orders=second)
    assert look(catalog, "card").age_s == pytest.approx(5, abs=0.01)
    epoch(catalog, view, at, orders=third)
    assert look(catalog, "card").age_s == 0


def test_a_view_is_no_younger_than_what_it_reads(catalog: Catalog, clock: Clock):
    lower = make_view(catalog, "lower", "orders")
    upper = make_view(catalog, "upper", "lower")
    first = add(catalog, run(relation(catalog, "orders").id))
    epoch(catalog, lower, None, orders=first)
    epoch(catalog, upper, None, lower=int(catalog.version()))
    add(catalog, run(relation(catalog, "orders").id))
    clock.advance(7 * SECOND_US)
    assert look(catalog, "upper").age_s == look(catalog, "lower").age_s == pytest.approx(7, abs=0.01)


def test_counters_go_on_from_the_last_position():
    read = {"orders": 4}
    one = advanced(None, applied_version=Version(4), read=read, plan=Plan.FULL_REFRESH, reason="first build", gained=9,
                   lost=0, seconds=1.0)  # fmt: skip
    stopped = one.stopped(Failure(code="DIVIDE_BY_ZERO", message="no", at=0), {})
    two = advanced(stopped, applied_version=Version(5), read=read, plan=Plan.INCREMENTAL, reason=None,
                   gained=1, lost=2, seconds=0.1)  # fmt: skip
    assert (two.rows_changed, two.failures, two.failed, two.message) == (12, 1, False, None)
    assert two.epochs == {"full refresh": 1, "incremental": 1}
    assert Position.parse(two.text()) == two


def test_a_position_of_the_release_before_can_be_read():
    text = json.dumps({"applied_version": 3, "read": {}, "status": "ready", "message": None, "epoch": {}})
    found = Position.parse(text)
    assert (found.epochs, found.rows_changed, found.failures) == ({}, 0, 0)


def test_system_tables_show_views_and_handlers(catalog: Catalog):
    view = make_view(catalog, "card", "orders")
    make_view(catalog, "loose", "other")
    inputs = (Input(relation=relation(catalog, "orders").id, batch=True, changefeed="f"),)
    exclusively(catalog, stored.put(Handler(name="shop", views=(view,), inputs=inputs, settings={"epoch_period_s": 2})))
    epoch(catalog, view, None, orders=3)
    with catalog.reading() as connection:
        context = Context.open(catalog, load())
        views = system.read(connection, "VIEWS", catalog.clock(), context).to_pylist()
        handlers = system.read(connection, "handlers", catalog.clock(), context).to_pylist()
        context.release()
    assert [(v["name"], v["handler"], v["status"]) for v in views] == [
        ("card", "shop", "ready"),
        ("loose", "default", "building"),
    ]
    assert (views[0]["gained"], views[0]["lost"], views[0]["read_versions"]) == (3, 1, '{"orders": 3}')
    assert [(h["name"], h["views"], h["inputs"], h["settings"]) for h in handlers] == [
        ("default", "loose", "", "{}"),
        ("shop", "card", "orders CHANGEFEED f AS BATCH", '{"epoch_period_s": 2}'),
    ]


def test_dropped_relations_leave_the_handlers_that_name_them(catalog: Catalog):
    view = make_view(catalog, "card", "orders")
    orders = relation(catalog, "orders").id
    exclusively(catalog, stored.put(Handler(name="shop", views=(view,), inputs=(Input(relation=orders, batch=True),))))
    exclusively(catalog, stored.put(Handler(name="alone")))
    with catalog.reading() as connection:
        [change] = stored.removal(connection, {view, orders})
        assert stored.removal(connection, {RelationId(999)}) == ()
    assert change == stored.put(Handler(name="shop"))


# ---- metrics --------------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_catalog_and_of_this_process(catalog: Catalog):
    view = make_view(catalog, "card", "orders")
    make_view(catalog, "loose", "other")
    at = epoch(catalog, view, None, plan=Plan.FULL_REFRESH, orders=3)
    epoch(catalog, view, at, orders=4)
    metrics = Metrics(catalog)
    for plan in (Plan.INCREMENTAL, Plan.NOTHING):
        metrics.observe(Epoch(view="card", applied_version=Version(4), plan=plan, seconds=0.2))
    text = metrics.text()
    for line in (
        'ebla_view_applied_version{handler="default",view="card"} 4.0',
        'ebla_view_age_seconds{handler="default",view="card"} 0.0',
        'ebla_view_rows_changed_total{handler="default",view="card"} 8.0',
        'ebla_view_epochs_total{handler="default",plan="full refresh",view="card"} 1.0',
        'ebla_view_epochs_total{handler="default",plan="incremental",view="card"} 1.0',
        'ebla_view_failures_total{handler="default",view="card"} 0.0',
        'ebla_view_status{handler="default",status="building",view="loose"} 1.0',
        'ebla_view_epoch_seconds_count{plan="incremental",view="card"} 1.0',
    ):
        assert line in text.splitlines()
    assert 'ebla_view_age_seconds{handler="default",view="loose"}' not in text  # it has none yet
    assert 'plan="nothing to do"' not in text


def test_the_command_prints_them(catalog: Catalog, capsys: pytest.CaptureFixture[str]):
    view = make_view(catalog, "card", "orders")
    epoch(catalog, view, None, orders=3)
    assert run_command(["metrics", "-w", catalog.where]) == 0
    assert 'ebla_view_applied_version{handler="default",view="card"} 3.0' in capsys.readouterr().out
    assert run_command(["metrics", "-w", catalog.where, "--json"]) == 0
    samples = json.loads(capsys.readouterr().out)["metrics"]
    labels = {"view": "card", "handler": "default"}
    assert {"name": "ebla_view_applied_version", "labels": labels, "value": 3.0} in samples
