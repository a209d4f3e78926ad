"""The form of a life cycle: its steps, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from ebla.errors import ConflictError

S = TypeVar("S", bound=StrEnum)


class Actor(StrEnum):
    """Who takes a step."""

    STATEMENT = "a statement"
    PROCESS = "any process"
    COORDINATOR = "the coordinator"
    WORKER = "a worker"
    EPOCH = "an epoch"
    OPERATION = "a move, split or merge"


class Step(NamedTuple, Generic[S]):
    """One row of a life cycle. `None` stands for a thing that is not there: before it is created, after it is gone."""

    before: S | None
    after: S | None
    actor: Actor
    requires: str
    """What must hold; the label in a diagram."""
    effect: str
    """What the step does besides changing the state."""


class Lifecycle(Generic[S]):
    """All steps of a kind of thing. `nothing` is a state that means that the thing is not there."""

    def __init__(self, thing: str, steps: Sequence[Step[S]], *, nothing: S | None = None) -> None:
        self.thing = thing
        self.steps = tuple(steps)
        self._nothing = nothing
        self._by_states = {(step.before, step.after): step for step in self.steps}
        if len(self._by_states) != len(self.steps):
            raise ValueError(f"{thing}: expected one row for a step, found two rows between the same states")

    def allows(self, before: S | None, after: S | None) -> bool:
        return (before, after) in self._by_states

    def step(self, before: S | None, after: S | None, name: object) -> Step[S]:
        """The row of a step that is about to be taken by the thing of this name; a step without a row is refused."""
        found = self._by_states.get((before, after))
        if found is None:
            ways = " or ".join(self._said(step.after) for step in self.from_(before)) or "no state"
            raise ConflictError(
                f"{self.thing} {name}: expected a state before {self._said(after)}, found {self._said(before)}, "
                f"which leads to {ways}; read it again"
            )
        return found

    def from_(self, state: S | None) -> list[Step[S]]:
        """The steps that lead on from a state."""
        return [step for step in self.steps if step.before == state]

    def ways(self, state: S | None) -> list[str]:
        """What leads on from a state, a line each."""
        return [f"to {self._said(s.after)}, by {s.actor}: {s.requires}; {s.effect}" for s in self.from_(state)]

    def value(self, state: S | None) -> dict[str, object]:
        """A state and what leads on from it, for JSON."""
        steps = [{"to": s.after, "who": s.actor, "requires": s.requires, "does": s.effect} for s in self.from_(state)]
        return {"now": state, "steps": steps}

    def diagram(self) -> list[str]:
        """The lines of a Mermaid state diagram."""
        return [f"    {self._drawn(s.before)} --> {self._drawn(s.after)}: {s.requires}" for s in self.steps]

    def table(self) -> list[str]:
        """The lines of a Markdown table, one for each step."""
        return [
            f"| {self._named(s.before)} | {self._named(s.after)} | {s.actor} | {s.requires} | {s.effect} |"
            for s in self.steps
        ]

    def _drawn(self, state: S | None) -> str:
        return "[*]" if state is None or state is self._nothing else state.value

    @staticmethod
    def _said(state: S | None) -> str:
        return "nothing" if state is None else state.value

    def _named(self, state: S | None) -> str:
        return "–" if state is None else f"`{state.value}`"
