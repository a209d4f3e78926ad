"""What is to be done next with a view whose dictionaries have changed, as the catalog says."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection

from ebla.base.ids import Version
from ebla.base.settings import Settings
from ebla.catalog import reads, troubles
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity, Trouble
from ebla.model.handlers import DICTIONARY, Handler, Tuning, by_name, tuning
from ebla.relations import handlers as stored
from ebla.relations.cut import cut_of
from ebla.relations.views import View
from ebla.views.handlers import dictionary_views
from ebla.views.handlers.dictionary_views import DueRefresh, RunningRefresh
from ebla.views.handlers.refresh_speed import RefreshSpeed


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut:
    """What a change of dictionaries is to a view."""

    by: tuple[str, ...] | str
    """The columns of the cut, or why there are none."""
    view_rows: int
    rows: int
    """Of the view, that the change touches, if dictionaries' rows are used equally often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRefresh:
    """What is to be done with a view: begin a refresh, or go on with it."""

    view: View
    handler: Handler
    going: RunningRefresh | None
    due: DueRefresh | None
    tuned: Tuning
    pace: RefreshSpeed
    fan_out: FanOut | None
    """Of a change that begins and concerns the view."""
    in_trouble: bool
    pause_s: float
    """How long until it is tried again."""

    @property
    def chunk(self) -> object:
        """What tells this chunk from any other."""
        if self.going is not None:
            return tuple(self.going.refresh.to.items()), self.going.refresh.up_to
        assert self.due is not None
        return tuple(self.due.moved.items())

    @property
    def is_paused(self) -> bool:
        if self.going is None:
            return False
        refresh = self.going.refresh
        return refresh.on_hold or self.pace.rows_per_minute == 0 or (refresh.cancelled and not self.going.again)

    @property
    def is_whole(self) -> bool:
        """Whether all that is left is one epoch: the view cannot be cut, or a row is mended on which it failed."""
        return self.going is None or self.going.mended is not None

    @property
    def is_paced(self) -> bool:
        """Whether the rows that the step writes count against the pace."""
        return self.rows_left is not None

    @property
    def rows_left(self) -> int | None:
        """Rows to write, about; `None` where no pace is kept, because no row is written."""
        if self.going is not None:
            return self.going.refresh.rows_left
        return self.fan_out.rows if self.fan_out is not None and isinstance(self.fan_out.by, str) else None


def look(
    catalog: Catalog, settings: Settings, name: str, begin: Collection[str], go_on: Collection[str]
) -> NextRefresh | None:
    """What is to be done with a view of these handlers; `None`: nothing."""
    with catalog.reading() as connection:
        going = _named(dictionary_views.running(connection, go_on), name)
        due = None if going is not None else _named(dictionary_views.due(connection, begin), name)
        one = going or due
        if one is None:
            return None
        trouble = troubles.find(connection, one.view.relation.id, Activity.DICTIONARY)
        tuned = tuning(one.handler, settings, by_name(stored.handlers(connection), DICTIONARY))
        return NextRefresh(
            view=one.view,
            handler=one.handler,
            going=going,
            due=due,
            tuned=tuned,
            pace=RefreshSpeed.of(tuned, None if going is None else going.refresh),
            fan_out=_fan_out(connection, due) if due is not None and due.concerned else None,
            in_trouble=trouble is not None,
            pause_s=_pause_s(catalog, trouble),
        )


def _pause_s(catalog: Catalog, trouble: Trouble | None) -> float:
    retry_at = None if trouble is None else trouble.retry_at
    return 0.0 if retry_at is None else max(0, retry_at - catalog.clock()) / 1e6


def _fan_out(connection: Connection, due: DueRefresh) -> FanOut:
    relations = {n: reads.relation(connection, n) for n in due.view.inputs}
    rows = reads.snapshot(connection, due.view.relation).rows_at_most
    assert due.view.position is not None
    by = cut_of(due.view, relations, due.batch)
    if any(relations[name].horizon > due.view.position.read[name] for name in due.batch):
        by = "the dictionaries as the view has them were vacuumed"  # it came to them late
    share = 0.0
    for name, version in due.moved.items():
        read, relation = Version(due.view.position.read[name]), relations[name]
        written = sum(run.rows for run in reads.writes_between(connection, relation, read, version))
        share += written / max(1, reads.snapshot(connection, relation, version).rows_at_most)
    return FanOut(by=by, view_rows=rows, rows=max(1, round(rows * min(1.0, share))))


Named = TypeVar("Named", DueRefresh, RunningRefresh)


def _named(found: Iterable[Named], name: str) -> Named | None:
    return next((one for one in found if one.view.relation.name.lower() == name), None)
