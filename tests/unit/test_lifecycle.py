"""Life cycles as tables: what holds of every one of them, what they refuse, and the page that is drawn from them."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import ebla
from ebla.errors import ConflictError
from ebla.model.lifecycle import index, node, tablet, task, view
from ebla.model.lifecycle.index import Permission
from ebla.model.lifecycle.steps import Actor, Lifecycle, Step
from support import lifecycle_page

LIVES = [index, view, task, node, tablet]

PLACED = {
    "model/relation.py": "the sets of replicas, by the stage",
    "catalog/transitions.py": "what a transition changes of the map",
    "catalog/ddl.py": "where a new relation lies",
    "indexes/create.py": "a new index lies where its base does",
    "tables/commit.py": "a new table is written to before it is there",
}
"""The modules that read which nodes the map gives a tablet; all others ask for those of its stage."""
CHOSEN = {
    "model/relation.py": "the sets of replicas, by the stage",
    "catalog/tablet_copies.py": "what the end of a stage requires of the next set",
}
"""The modules that choose one of a tablet's sets of replicas."""


def test_the_page_is_drawn_from_the_tables():
    assert lifecycle_page.PAGE.read_text(encoding="utf-8") == lifecycle_page.page()


@pytest.mark.parametrize("life", LIVES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_state_has_its_rights_can_be_reached_and_has_an_end(life: ModuleType):
    states = set(life.RIGHTS)
    assert states == set(next(iter(states)).__class__.__members__.values())
    befores, afters = Counter(s.before for s in life.STEPS), Counter(s.after for s in life.STEPS)
    nothing = {None, index.Permission.ABSENT, task.TaskState.GONE, node.NodeState.LEFT}
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


def test_no_step_of_a_tablet_changes_what_is_read_and_what_is_written():
    for step in tablet.STEPS:
        before, after = step.before, step.after
        if after is None:  # the map has the set that was used last
            assert tablet.reads_from(before) == tablet.writes_to(before) == tablet.requires_of(before)
            continue
        changed = [of(before) != of(after) for of in (tablet.reads_from, tablet.requires_of)]
        assert sum(changed) <= 1, f"{before} to {after}"


def test_a_write_goes_wherever_copies_are_required_and_wherever_readers_one_stage_apart_read():
    def holds(writes: tablet.Replicas, wanted: tablet.Replicas) -> bool:
        return writes in (tablet.Replicas.BOTH, wanted)

    for step in tablet.STEPS:
        states = [state for state in (step.before, step.after) if state is not None]
        for writer in states:
            assert holds(tablet.writes_to(writer), tablet.requires_of(writer))
            if len(states) == 2 and not tablet.goes_back(states[1]):
                for reader in states:
                    assert holds(tablet.requires_of(writer), tablet.reads_from(reader)), f"{writer}, read by {reader}"


def test_a_node_that_left_has_no_way_back():
    assert node.LIFE.from_(node.NodeState.LEFT) == []
    assert not any(node.RIGHTS[node.NodeState.LEFT])


def names(one: ast.ImportFrom) -> set[str]:
    return {alias.name for alias in one.names}


def test_readers_and_writers_ask_the_stage_of_a_tablet_and_nothing_else():
    source = Path(ebla.__file__).parent
    placed, chosen = set(), set()
    for path in source.rglob("*.py"):
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(one, ast.Attribute) and one.attr == "placement":
                placed.add(path.relative_to(source).as_posix())
            if isinstance(one, ast.ImportFrom) and one.module == tablet.__name__ and "Replicas" in names(one):
                chosen.add(path.relative_to(source).as_posix())
    assert placed == PLACED.keys()
    assert chosen == CHOSEN.keys()
