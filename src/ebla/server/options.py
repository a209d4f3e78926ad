"""The options of a node's HTTP API: who may ask, how much, and what else it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import APIRouter

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    body_bytes: int = 64 * MIB
    """Of one request."""
    rows: int = 1_000_000
    """Of one answer."""
    request_s: float = 600.0
    """Statements take no longer than this; a request may ask for less."""
    requests_per_s: float | None = None
    """Of one token, on average; `None`: no limit."""
    burst: int = 100
    """Requests that one token may send at once before the average counts."""
    statements: int = 16
    """Statements that run at the same time; further ones wait."""
    queries: int = 8
    """First-100 queries that run at the same time."""
    streams: int = 100
    """Open streams of changes."""
    pages_bytes: int = 256 * MIB
    """Memory of answers that are fetched page by page."""


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
