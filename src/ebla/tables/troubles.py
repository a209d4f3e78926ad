"""Noting what keeps a relation from going on, and forgetting it when it goes on."""

from __future__ import annotations

import traceback

from ebla.base.ids import RelationId
from ebla.catalog import build_tasks, reads, troubles
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity, Trouble
from ebla.errors import EblaError
from ebla.model.failure import Failure
from ebla.model.relation import Kind, Relation
from ebla.spark.faults import fault_of

TRACEBACK_MAX = 20_000


def failure_of(error: BaseException, now: int) -> Failure:
    """An error as the state of a view keeps it."""
    culprit = error.culprit if isinstance(error, EblaError) else None
    return Failure(code=fault_of(error).code, message=str(error), culprit=culprit, at=now)


def note(
    catalog: Catalog,
    holder: str,
    relation: Relation,
    work: Activity,
    error: BaseException,
    *,
    final: bool | None = None,
) -> Trouble:
    """Record a failure with its traceback. `final`: whether it is tried again, whatever the error is by itself."""
    fault = fault_of(error)
    return troubles.record(
        catalog,
        relation=relation.id,
        work=work,
        name=relation.name,
        kind=relation.kind,
        final=fault.final if final is None else final,
        code=fault.code,
        message=" ".join(fault.message.split()),
        culprit=error.culprit if isinstance(error, EblaError) else None,
        traceback="".join(traceback.format_exception(error))[-TRACEBACK_MAX:],
        holder=holder,
    )


def note_build(catalog: Catalog, holder: str, number: RelationId, error: BaseException) -> Trouble | None:
    """Record what keeps a build from going on, unless it was given up already. `None`: it is gone, or built.

    A build that failed on a row has stopped before, and is not noted here. So a view, or a table's staged runs, are
    tried again after a pause whatever the error is: a check of a sample may meet a row that no chunk did.
    """
    with catalog.reading() as connection:
        relation = reads.relation_by_id(connection, number)
        before = troubles.find(connection, number, Activity.BUILD)
        is_built = relation is not None and relation.kind is Kind.VIEW and number not in build_tasks.builds(connection)
    if relation is None or is_built:  # a check that was asked for twice may end behind the build
        return None
    if before is not None and before.final and relation.kind is Kind.INDEX:
        return before
    return note(
        catalog,
        holder,
        relation,
        Activity.BUILD,
        error,
        final=None if relation.kind is Kind.INDEX else False,
    )
