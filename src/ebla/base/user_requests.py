"""What the thread works for: a request that a user sent to a node.

A request has an id that its client made. The id is kept with what the request commits, so that a client that lost the
answer can send the same request again, also to another node, and it is done once. A thread that works for no request,
such as an epoch's, leaves no such trace.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from ebla.errors import RequestCancelledError


@dataclass(slots=True, eq=False, kw_only=True)
class UserRequest:
    """One request, or one statement of it. Other threads cancel it and look how far it is."""

    id: str
    """The client's id, with the number of the statement in it."""
    user: str
    text: str = ""
    """What is done, in short, for the audit log."""
    committed: bool = False
    """Whether a commit carries the id already; further commits of the statement do not."""
    cancelled: str | None = None
    """Why it was cancelled."""
    doing: str = ""
    part: float | None = None
    whole: UserRequest | None = field(default=None, repr=False)
    """Of a statement: the request that it belongs to."""

    def statement(self, part: int | str, text: str) -> UserRequest:
        """A part of the request that commits by itself; the first one has the request's own id."""
        return UserRequest(id=f"{self.id}.{part}" if part else self.id, user=self.user, text=text, whole=self)

    def cancel(self, reason: str) -> None:
        self.cancelled = self.cancelled or reason

    def require_wanted(self) -> None:
        """Raise if it was cancelled."""
        reason = (self.whole or self).cancelled
        if reason is not None:
            raise RequestCancelledError(reason)

    def tell(self, doing: str, part: float | None) -> None:
        request = self.whole or self
        request.doing, request.part = doing, part
        self.require_wanted()


_here = threading.local()


def current() -> UserRequest | None:
    """The request that this thread works for."""
    found: UserRequest | None = getattr(_here, "asked", None)
    return found


@contextlib.contextmanager
def asking(request: UserRequest | None) -> Iterator[None]:
    """This thread works for a request until the block ends."""
    before = current()
    _here.asked = request
    try:
        yield
    finally:
        _here.asked = before


def require_wanted() -> None:
    """Raise if this thread works for a request that was cancelled."""
    found = current()
    if found is not None:
        found.require_wanted()


def tell(doing: str, part: float | None) -> None:
    """Say what is being done for the request of this thread and, where known, how much of it is done (0 to 1)."""
    found = current()
    if found is not None:
        found.tell(doing, part)
