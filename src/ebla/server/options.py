"""The options of a node's HTTP API: who may ask, how much, and what else it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

MIB = 2**20


class Limits(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    body_bytes: int = Field(default=64 * MIB, gt=0, description="Bytes of the body of a request.")
    rows: int = Field(default=1_000_000, gt=0, description="Rows of an answer.")
    request_s: float = Field(default=600.0, gt=0, description="Seconds of a statement; a request may ask for less.")
    requests_per_s: float | None = Field(
        default=None, gt=0, description="Requests a second of one token, on average; default: no limit."
    )
    burst: int = Field(
        default=100, ge=1, description="Requests that one token may send at once before the average counts."
    )
    statements: int = Field(default=16, ge=1, description="Statements that run at the same time; further ones wait.")
    queries: int = Field(default=8, ge=1, description="First-100 queries that run at the same time; further ones wait.")
    streams: int = Field(default=100, ge=1, description="Open streams of changes and events.")
    pages_bytes: int = Field(default=256 * MIB, ge=0, description="Memory of answers that are fetched page by page.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    users: bool = True
    """Whether a token is asked for. Without, every client is an administrator."""
    load_from: tuple[Path, ...] = ()
    """`LOAD` reads files below these directories alone."""
    limits: Limits = field(default_factory=Limits)
    routers: Sequence[APIRouter] = ()
    """What is served besides: it looks after its own access."""
    stopping: Callable[[], bool] = lambda: False
    """Whether the node is about to stop: new requests are refused, those that run are finished."""
    unready: Callable[[], str | None] = lambda: None
    """Why the node cannot serve yet; `None` when it can."""
