"""The page about building is drawn from the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from ebla.model import index_states as states
from ebla.model import tasks as model
from ebla.model.index_states import Permission
from ebla.model.tasks import TaskState

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "building.md"


S = TypeVar("S", bound=StrEnum)


def lines(transitions: Mapping[tuple[S, S], str], begin: S, end: S) -> list[str]:
    """A state diagram; the first and the last state are Mermaid's own where they mean that nothing is there."""

    def name(state: S) -> str:
        return "[*]" if state is end else state.value

    drawn = [f"    {name(a)} --> {name(b)}: {why}" for (a, b), why in transitions.items()]
    return drawn if begin is end else [f"    [*] --> {name(begin)}: created with its view", *drawn]


def permissions() -> list[str]:
    def word(value: bool) -> str:
        return "yes" if value else "no"

    found = []
    for state in Permission:
        level = states.backfill_level(state)
        cells = [f"`{state}`", word(states.may_read(state)), word(states.writer_deletes(state))]
        cells += [word(states.writer_inserts(state)), "no" if level is None else f"level {level}"]
        found.append(f"| {' | '.join(cells)} |")
    return found


def expected() -> dict[str, list[str]]:
    return {
        "TASKS": lines(model.TRANSITIONS, TaskState.CREATED, TaskState.GONE),
        "PERMISSIONS": lines(states.TRANSITIONS, Permission.ABSENT, Permission.ABSENT),
        "STATES": permissions(),
    }


def test_the_diagrams_are_those_of_the_transition_tables():
    page = PAGE.read_text(encoding="utf-8")
    diagrams = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", page, re.DOTALL)
    assert [d.splitlines() for d in diagrams] == [expected()["TASKS"], expected()["PERMISSIONS"]]


def test_the_table_of_permissions_is_that_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if re.match(r"\| `\w+` \| (yes|no) \|", line)] == permissions()


def test_every_module_is_listed_and_opens_with_its_theory():
    page = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `((?:\w+/)?\w+\.py)` \|", page, re.MULTILINE)
    ebla = PAGE.parents[2] / "src" / "ebla"
    modules = {path.name for path in (ebla / "build").glob("*.py") if path.name != "__init__.py"}
    assert {name for name in listed if "/" not in name} == modules
    for name in listed:
        if name not in ("ports.py", "stored.py", "relations/builds.py"):
            text = (ebla / (name if "/" in name else f"build/{name}")).read_text(encoding="utf-8")
            assert "Theory of operation" in text, name
