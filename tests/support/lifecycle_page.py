"""The page about life cycles, drawn from the tables. Run as a module (`PYTHONPATH=src:tests`), it writes the page."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

from ebla.model.lifecycle import index, node, tablet, task, view
from ebla.model.lifecycle.steps import Lifecycle

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "lifecycles.md"

OPENING = """# Life cycles

Part: `src/ebla/model/lifecycle`. Indexes, views, tasks, nodes and tablets have states. Each has one file with the
theory of its operation, its states, who may read and who maintains in each state, and every step as one row of a table.
The code that takes a step asks the table, which refuses a step that it does not have. This page is drawn from the
tables.
"""


def page() -> str:
    lives: tuple[ModuleType, ...] = (index, view, task, node, tablet)
    sections = [_section(module.LIFE.thing.capitalize(), module, module.LIFE) for module in lives]
    return "\n".join([OPENING, *sections])


def _section(title: str, module: ModuleType, life: Lifecycle[Any]) -> str:
    theory = (inspect.getdoc(module) or "").partition("\n\n")[2]
    lines = [f"## {title}", "", theory.replace("Theory of operation. ", ""), ""]
    lines += ["```mermaid", "stateDiagram-v2", *life.diagram(), "```", ""]
    lines += [*_rights(module.RIGHTS), ""]
    lines += ["| from | to | who | requires | does |", "|---|---|---|---|---|", *life.table(), ""]
    return "\n".join(lines)


def _rights(rights: dict[StrEnum, Any]) -> Iterable[str]:
    names = next(iter(rights.values()))._fields
    yield f"| state | {' | '.join(name.replace('_', ' ') for name in names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for state, permitted in rights.items():
        yield f"| `{state}` | {' | '.join(_word(value) for value in permitted)} |"


def _word(value: object) -> str:
    match value:
        case True:
            return "yes"
        case False | None:
            return "no"
        case _:
            return str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
