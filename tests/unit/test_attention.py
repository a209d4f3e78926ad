"""What a view or index waits for, and what needs a person: from values alone."""

from __future__ import annotations

import pytest

from ebla.base.ids import RelationId
from ebla.catalog.troubles import Activity, Trouble
from ebla.errors import Culprit
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import Kind
from ebla.relations.attention import ATTEMPTS_MAX, NO_PROCESS, STALE_S, View, index_waits_for, needs, waits_for

NOW = 100_000_000


def trouble(*, final: bool, attempts: int = 1, kind: Kind = Kind.VIEW, name: str = "v") -> Trouble:
    return Trouble(
        relation=RelationId(1),
        work=Activity.EPOCH,
        name=name,
        kind=kind,
        final=final,
        code="CAST_INVALID_INPUT",
        message="cannot cast 'x'",
        culprit=Culprit(None, "id = 7"),
        traceback=None,
        attempts=attempts,
        holder="me",
        first_at=NOW,
        last_at=NOW,
        retry_at=None if final else NOW + 4_000_000,
    )


def view(**changed: object) -> View:
    given = {"name": "v", "handler": "default", "status": "ready", "age_s": 0.0, "error": None, **changed}
    return View(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, None),
        ({"age_s": 5.0}, "the next epoch"),
        ({"age_s": 5.0, "maintained": False}, NO_PROCESS),
        ({"age_s": 5.0, "should_run": False}, "ALTER HANDLER default SET (should_run = true)"),
        ({"age_s": 5.0, "trouble": trouble(final=False, attempts=3)}, "attempt 4, again in 4 s"),
        ({"status": "failed", "trouble": trouble(final=True)}, "a change of its inputs, or FLUSH"),
        ({"status": "building", "age_s": None, "build": "the build of w"}, "the build of w"),
        ({"status": "building", "age_s": None, "maintained": False}, NO_PROCESS),
    ],
)
def test_what_a_view_waits_for(facts: dict[str, object], said: str | None):
    usual = {
        "status": "ready",
        "age_s": 0.0,
        "should_run": True,
        "handler": "default",
        "trouble": None,
        "build": None,
        "maintained": True,
        "now": NOW,
    }
    assert waits_for(**{**usual, **facts}) == said  # type: ignore[arg-type]


def test_what_an_index_waits_for():
    state = Permission.BACKFILLING
    usual = {"state": state, "trouble": None, "detail": None, "maintained": True, "now": NOW}
    assert index_waits_for(**{**usual, "state": Permission.READ_WRITE_AND_DELETE}) is None  # type: ignore[arg-type]
    assert index_waits_for(**{**usual, "maintained": False}) == NO_PROCESS  # type: ignore[arg-type]
    deferred = {**usual, "state": Permission.ABSENT, "detail": "BUILD INDEXES ON t", "maintained": False}
    assert index_waits_for(**deferred) == "BUILD INDEXES ON t"  # type: ignore[arg-type]


def subjects(**given: object) -> list[str]:
    usual = {"views": [], "builds": [], "handlers": {}, "troubles": [], "maintained": True}
    return [one.subject for one in needs(**{**usual, **given})]  # type: ignore[arg-type]


def test_a_warehouse_that_is_maintained_needs_nobody():
    assert subjects(views=[view(age_s=10 * STALE_S), view(name="w", status="building", age_s=None)], builds=["w"]) == []


def test_a_final_failure_needs_a_person():
    assert subjects(troubles=[trouble(final=True)], views=[view(status="failed")]) == ["view v"]
    assert subjects(views=[view(status="failed", error="division by zero")]) == ["view v"]
    assert subjects(troubles=[trouble(final=True, kind=Kind.INDEX, name="u")]) == ["index u"]


def test_work_that_fails_again_and_again_needs_a_person():
    assert subjects(troubles=[trouble(final=False, attempts=ATTEMPTS_MAX - 1)]) == []
    assert subjects(troubles=[trouble(final=False, attempts=ATTEMPTS_MAX)]) == ["view v"]


def test_what_no_process_maintains_needs_a_person():
    old = view(age_s=STALE_S)
    assert subjects(views=[old], maintained=False) == ["view v"]
    assert subjects(views=[view(age_s=STALE_S / 2)], maintained=False) == []
    assert subjects(views=[old], maintained=False, handlers={"default": False}) == []
    assert subjects(builds=["i"], maintained=False) == ["i"]
