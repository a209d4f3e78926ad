"""What an epoch of a whole view computes from: its inputs where it stands and at the target, and its own rows."""

from __future__ import annotations

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.relations.views import Position
from ebla.views.epoch.attempt import Attempt
from ebla.views.epoch.growth import Growth
from ebla.views.epoch.operands import Operands


def whole_operands(attempt: Attempt, stands: Position | None, growth: Growth | None) -> tuple[Operands, Version]:
    """Read the inputs' snapshots and writes, and the view's own rows, in one transaction of the catalog.

    Returned with the version that the epoch brings the view to. `stands`: where its rows stand; `None`: there are none.
    """
    relations, until = attempt.relations, attempt.target.stream
    read = {} if stands is None else {n: Version(v) for n, v in stands.read.items()}
    before: dict[str, Version | None] = {n: read.get(n) for n in relations}
    with attempt.context.catalog.reading() as connection:
        if growth is not None and growth.stretches and stands is not None:
            # Nothing but the base's rows of the chunk is new. What was read then is as it is at the target.
            now = {n: max(until, read[n]) for n in relations}
            until = max(until, stands.applied_version)
            before.update(now)
        else:
            now = attempt.target.versions(relations, reads.current_version(connection))
        region = None if growth is None else growth.region()
        operands = Operands.read(
            connection, attempt.round, attempt.view, relations, before=before, now=now, region=region
        )
        operands.inputs.read_ahead(connection)
    return operands, until
