"""What an epoch did with a view. Stored by value, in positions of views and in metrics."""

from __future__ import annotations

from enum import StrEnum


class Plan(StrEnum):
    INCREMENTAL = "incremental"
    """The change was followed."""
    FULL_REFRESH = "full refresh"
    """The view was computed anew, because the change could not be followed or would have cost more."""
    BUILD = "build"
    """A chunk of a view that is being built, or an epoch of what is covered of it."""
    REFRESH = "refresh"
    """A chunk of a change of dictionaries."""
    UNCHANGED = "unchanged"
    """Inputs were written to, and no row of the view changed."""
    NOTHING = "nothing to do"
    """No commit lies behind the versions that the view has read. Nothing is stored."""
    FAILED = "failed"
    """A row or the text of the query is to blame, and the view stopped."""
    WAITING = "waiting"
    """Something else went wrong; the epoch is tried again."""
