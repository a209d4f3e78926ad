"""Builds that are tried again: on request, and what the statements that wait for them say.

Theory of operation. A view whose build failed on a row is held, with the failure stored, until an input is written to
or a user asks; either way one commit forgets the failure, at the position that was read. Every other error is tried
again after a pause, and a statement that waited ends with an error that says so.
"""

from __future__ import annotations

from ebla.base.ids import NodeId
from ebla.catalog.store import Catalog
from ebla.errors import EblaError, SparkJobError
from ebla.model import changes as c
from ebla.relations.views import View, moved, unmoved


def forgive(catalog: Catalog, node: NodeId, view: View) -> None:
    """Let a build that failed go on where it was."""
    if view.reached is None or not view.reached.failed:
        return
    again = view.reached.forgiven()
    catalog.commit(
        c.Decision(
            reason=f"build of {view.relation.name}: try again",
            relation=view.relation.id,
            requires=(unmoved(view),),
            updates=moved(view, again),
            work=c.WorkKind.BUILD,
        ),
        node=node,
    )


def still_trying(kind: str, name: str, error: Exception) -> EblaError:
    """The error of a statement that waited for a build: why the build is tried again, and what the user can do."""
    said = str(error) if isinstance(error, EblaError) else f"{kind} {name}: unexpected {type(error).__name__}: {error}"
    said = said.removesuffix("; repeat the statement")
    said += f"; its build is tried again by itself: SHOW PROGRESS {name} tells when, CANCEL BUILD {name} ends it"
    made: EblaError
    if isinstance(error, SparkJobError):
        made = SparkJobError(said, lost=error.lost, code=error.code)
    else:
        made = type(error)(said) if isinstance(error, EblaError) else EblaError(said)
    made.goes_on = True
    return made
