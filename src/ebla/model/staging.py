"""Whether a run that arrives outside a write becomes visible at once, or only after its view updates were made.

Theory of operation. A bulk load, a repair or a copy from another replica brings whole runs. A view learns of ordinary
writes by their changes; of these runs it may not. So the run is *staged*, invisible to reads of its base, wherever a
view would otherwise miss it:

- No view: no view misses the rows.
- No view has begun: the build that comes will read the run.
- A view has begun and is not built: it may have passed the run's keys, or not yet. Staged, until a `process_staging`
  task has made it an ordinary write, whose changes epochs find (`ebla.tables.staging`).
- Views are built and none has begun: a copy or a load brings nothing new or comes with its changes, but a repair
  brings rows that no write of this replica has shown. Staged for a repair, visible at once otherwise.

Staged runs of a base that the coordinator manages wait for its task. Those of a base that lies on one node alone, and
without a coordinator, go to that node's own generator of updates.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import assert_never


class Destination(StrEnum):
    NORMAL_DIRECTORY = "normal_directory"
    STAGING_DIRECTLY_TO_GENERATOR = "staging_directly_to_generator"
    STAGING_MANAGED_BY_VBC = "staging_managed_by_vbc"


class Arrival(StrEnum):
    """Why a run comes."""

    LOAD = "load"
    REPAIR = "repair"
    COPY = "copy"


class ViewStage(StrEnum):
    """How far the build of one view of the base is."""

    NOT_STARTED = "not_started"
    STARTED = "started"
    BUILT = "built"


class ViewsStage(StrEnum):
    """How far the builds of all views of the base are, as one word."""

    NONE = "none"
    NOT_STARTED = "not_started"
    STARTED = "started"
    BUILT = "built"


def summary(views: Collection[ViewStage]) -> ViewsStage:
    """The stage that decides: a view under way before one that is built, and that before one that has not begun."""
    if not views:
        return ViewsStage.NONE
    if ViewStage.STARTED in views:
        return ViewsStage.STARTED
    return ViewsStage.BUILT if ViewStage.BUILT in views else ViewsStage.NOT_STARTED


def destination(views: Collection[ViewStage], arrival: Arrival, *, coordinated: bool = True) -> Destination:
    staging = Destination.STAGING_MANAGED_BY_VBC if coordinated else Destination.STAGING_DIRECTLY_TO_GENERATOR
    stage = summary(views)
    match stage:
        case ViewsStage.NONE | ViewsStage.NOT_STARTED:
            return Destination.NORMAL_DIRECTORY
        case ViewsStage.STARTED:
            return staging
        case ViewsStage.BUILT:
            return _when_built(arrival, staging)
        case _:
            assert_never(stage)


def _when_built(arrival: Arrival, staging: Destination) -> Destination:
    match arrival:
        case Arrival.REPAIR:
            return staging
        case Arrival.LOAD | Arrival.COPY:
            return Destination.NORMAL_DIRECTORY
        case _:
            assert_never(arrival)
