"""What the builds of one process fill relations with, by the kind of relation.

Theory of operation. The engine knows the protocol alone (`ebla.build.ports.Filler`); this is the one place that knows
which filler a view has, and which an index.
"""

from __future__ import annotations

from ebla.build.ports import Filler
from ebla.indexes.filler import IndexFiller
from ebla.model.relation import Kind
from ebla.tables.write_access import WriteAccess
from ebla.views.fill.filler import ViewFiller
from ebla.views.handlers.epochs import Epochs


def fillers(context: WriteAccess, epochs: Epochs) -> dict[Kind, Filler]:
    return {Kind.INDEX: IndexFiller(context=context), Kind.VIEW: ViewFiller(context=context, epochs=epochs)}
