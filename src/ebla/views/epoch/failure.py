"""What went wrong with an epoch of a view, recorded: what may pass as a trouble, a row or a text with the view."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ebla.base.ids import Version
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity, Trouble
from ebla.errors import CatalogError, ConflictError
from ebla.model import changes as c
from ebla.relations import views as definition
from ebla.relations.views import Position, View
from ebla.spark.faults import is_final
from ebla.tables import troubles as troubled
from ebla.tables.write_access import WriteAccess

log = logging.getLogger("ebla.views")


def is_of_view(error: Exception) -> bool:
    """Whether a row or the text of the query is to blame, so that another attempt fails as well."""
    return is_final(error) and not isinstance(error, ConflictError | CatalogError)


def note(catalog: Catalog, holder: str, view: View, error: Exception) -> Trouble:
    """Record what may pass and kept an epoch of a view from being done."""
    found = troubled.note(catalog, holder, view.relation, Activity.EPOCH, error)
    name = view.relation.name
    log.warning("view=%s epoch failed attempts=%d code=%s reason=%s", name, found.attempts, found.code, found.message)
    log.debug("view=%s", name, exc_info=error)
    return found


def stop(context: WriteAccess, view: View, error: Exception, tried: Mapping[str, int], work: Activity) -> None:
    """Keep with a view which row or text is to blame. It is tried again when an input has a version behind these."""
    failure = troubled.failure_of(error, context.catalog.clock())
    position = (view.reached or Position(applied_version=Version(0), read={})).stopped(failure, tried)
    context.catalog.commit(
        c.Decision(
            reason=f"{work} of {view.relation.name} failed",
            relation=view.relation.id,
            requires=(definition.unmoved(view),),
            updates=definition.moved(view, position),
            work=c.WorkKind.EPOCH_FAILURE if work is Activity.EPOCH else c.WorkKind.BUILD_FAILURE,
        ),
        node=context.node,
    )
    troubled.note(context.catalog, context.holder, view.relation, work, error)
