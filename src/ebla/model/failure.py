"""Why work on a relation failed, as the catalog keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from ebla.errors import Culprit


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    code: str
    """Spark's error condition, or the class of the error."""
    message: str
    culprit: Culprit | None = None
    """The row that is to blame, where it was found."""
    at: int
    """When it happened, in microseconds since 1970."""
