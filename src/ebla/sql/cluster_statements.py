"""Statements about the cluster as values: its nodes, where tablets lie, and what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterNode:
    """Something is asked of a node; `ignored` are dead nodes to do without, `source` is a datacenter to copy from."""

    action: Literal["leave", "remove", "rebuild"]
    node: str
    ignored: tuple[str, ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGeneration:
    """New generations of change streams are asked for: of a table or a view, or of all."""

    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForRequest:
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBalancing:
    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowNodes:
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequests:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTableOptions:
    """`ALTER TABLE t SET (name = value, …)`: where and in how many parts its rows lie."""

    table: str
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTablet:
    tablet: int
    table: str
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTablets:
    """Where tablets lie: of one table or view, or of all."""

    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTransitions:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainTablet:
    """Where a tablet stands in its life, and what leads on."""

    tablet: int
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainNode:
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainTask:
    """A task of building, by its id."""

    task: str


TabletStatement = MoveTablet | ShowTablets | ShowTransitions

LifeStatement = ExplainTablet | ExplainNode | ExplainTask

ClusterStatement = (
    TabletStatement
    | LifeStatement
    | SetTableOptions
    | AlterNode
    | NewGeneration
    | CancelRequest
    | WaitForRequest
    | SetBalancing
    | ShowNodes
    | ShowRequests
)
