"""Life cycles as tables: what holds of every one of them, what they refuse, and the page that is drawn from them."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest

from ebla.errors import ConflictError
from ebla.model.lifecycle import index, task, view
from ebla.model.lifecycle.index import Permission
from ebla.model.lifecycle.steps import Actor, Lifecycle, Step
from support import lifecycle_page

LIVES = [index, view, task]


def test_the_page_is_drawn_from_the_tables():
    assert lifecycle_page.PAGE.read_text(encoding="utf-8") == lifecycle_page.page()


@pytest.mark.parametrize("life", LIVES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_state_has_its_rights_can_be_reached_and_has_an_end(life: ModuleType):
    states = set(life.RIGHTS)
    assert states == set(next(iter(states)).__class__.__members__.values())
    befores, afters = Counter(s.before for s in life.STEPS), Counter(s.after for s in life.STEPS)
    nothing = {None, index.Permission.ABSENT, task.TaskState.GONE}
    assert states - nothing <= set(afters)
    assert states - nothing <= set(befores)
    assert nothing & set(befores)
    assert nothing & set(afters)


def test_a_step_without_a_row_is_refused_with_what_there_is():
    assert index.LIFE.step(Permission.DELETE_ONLY, Permission.WRITE_AND_DELETE, 7).requires == "barrier"
    with pytest.raises(ConflictError) as refused:
        index.LIFE.step(Permission.DELETE_ONLY, Permission.BACKFILLING, 7)
    assert str(refused.value) == (
        "index 7: expected a state before backfilling, found delete_only, "
        "which leads to write_and_delete or removing_deletes; read it again"
    )
    with pytest.raises(ConflictError, match="index 7: expected a state before backfilling, found nothing"):
        index.LIFE.step(None, Permission.BACKFILLING, 7)


def test_a_step_has_one_row():
    row = Step(Permission.ABSENT, Permission.DELETE_ONLY, Actor.STATEMENT, "CREATE INDEX", "")
    with pytest.raises(ValueError, match="found two rows between the same states"):
        Lifecycle("index", [row, row])
