"""Handlers as values, and what follows from them. Nothing here reads or writes anything.

A handler keeps some views up to date from some inputs. A `STREAM` input is read anew in every epoch. A `BATCH` input, a
dictionary, is read at a version of its own, which only the job `sys$dictionary` moves. A view that no handler names
belongs to the handler `default`, all of whose inputs are streams.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ebla.base.ids import RelationId, Version
from ebla.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from ebla.base.settings import Settings

DEFAULT = "default"
DICTIONARY = "sys$dictionary"
EVERYTHING = "*"
"""In the log of dictionary changes: a row came or went, so that every column did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    relation: RelationId
    batch: bool
    changefeed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What a row of `mv_handlers` says. `settings` holds only what was set; the rest falls back."""

    name: str
    views: tuple[RelationId, ...] = ()
    inputs: tuple[Input, ...] = ()
    consumer: str | None = None
    settings: Mapping[str, int | float] = field(default_factory=dict)
    should_run: bool = True

    @property
    def batch(self) -> frozenset[RelationId]:
        return frozenset(i.relation for i in self.inputs if i.batch)

    def text(self) -> str:
        return json.dumps(
            {
                "views": [int(v) for v in self.views],
                "inputs": [
                    {"relation": int(i.relation), "mode": "BATCH" if i.batch else "STREAM", "changefeed": i.changefeed}
                    for i in self.inputs
                ],
                "consumer": self.consumer,
                "settings": dict(self.settings),
            },
            sort_keys=True,
        )

    @classmethod
    def parse(cls, name: str, text: str, should_run: bool) -> Handler:
        value = json.loads(text)
        return cls(
            name=name,
            views=tuple(RelationId(v) for v in value.get("views", ())),
            inputs=tuple(
                Input(relation=RelationId(i["relation"]), batch=i["mode"] == "BATCH", changefeed=i.get("changefeed"))
                for i in value.get("inputs", ())
            ),
            consumer=value.get("consumer"),
            settings=value.get("settings", {}),
            should_run=should_run,
        )

    def with_views(self, places: Mapping[RelationId, RelationId]) -> Handler:
        """The handler after views have taken the places of others, which are the keys."""
        return replace(self, views=tuple(places.get(v, v) for v in self.views))

    def without(self, gone: Collection[RelationId]) -> Handler:
        """The handler after these relations were dropped."""
        return replace(
            self,
            views=tuple(v for v in self.views if v not in gone),
            inputs=tuple(i for i in self.inputs if i.relation not in gone),
        )


# ---- settings -------------------------------------------------------------------------------------------

SETTINGS: Mapping[str, type[int] | type[float]] = {
    "epoch_period_s": float,
    "batch_rows_max": int,
    "dictionary_period_s": float,
    "dictionary_rows_per_scan": int,
    "dictionary_rows_per_s": float,
}
"""What a handler may set for itself, each of the same name and meaning as in `ebla.base.settings`."""

_POSITIVE = frozenset({"dictionary_rows_per_scan", "dictionary_rows_per_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The settings in force for a handler."""

    epoch_period_s: float | None
    batch_rows_max: int
    dictionary_period_s: float
    dictionary_rows_per_scan: int
    dictionary_rows_per_s: float | None


def tuning(handler: Handler, settings: Settings, dictionary: Handler | None = None) -> Tuning:
    """What the handler sets, else for dictionaries what `sys$dictionary` sets, else what the process was given."""
    chosen: dict[str, int | float | None] = {name: getattr(settings, name) for name in SETTINGS}
    if dictionary is not None:
        chosen |= {n: v for n, v in dictionary.settings.items() if n.startswith("dictionary_")}
    chosen |= handler.settings
    return Tuning(**chosen)  # type: ignore[arg-type]


def with_settings(handler: Handler, given: Mapping[str, object]) -> Handler:
    """The handler with some settings changed; NULL returns one to its default."""
    settings = dict(handler.settings)
    should_run = handler.should_run
    for name, value in given.items():
        if name == "should_run":
            if not isinstance(value, bool):
                raise UsageError(f"should_run: expected true or false, found {value!r}")
            should_run = value
        elif name not in SETTINGS:
            names = ", ".join(["should_run", *SETTINGS])
            raise UnknownNameError(f"handler {handler.name}: expected a setting of {names}, found {name}")
        elif value is None:
            settings.pop(name, None)
        else:
            settings[name] = _number(name, value)
    return replace(handler, settings=settings, should_run=should_run)


def _number(name: str, value: object) -> int | float:
    whole = SETTINGS[name] is int
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not fits or value < 0 or (value == 0 and name in _POSITIVE):  # type: ignore[operator]
        least = "more than 0" if name in _POSITIVE else "from 0"
        raise UsageError(f"{name}: expected a {'whole ' if whole else ''}number {least}, found {value!r}")
    return value  # type: ignore[return-value]


# ---- which handler a view belongs to --------------------------------------------------------------------


def is_reserved(name: str) -> bool:
    return name.lower() == DEFAULT or name.lower().startswith("sys$")


def by_name(handlers: Iterable[Handler], name: str) -> Handler | None:
    return next((h for h in handlers if h.name.lower() == name.lower()), None)


def owners(views: Iterable[RelationId], handlers: Sequence[Handler]) -> dict[RelationId, Handler]:
    """The handler of each view."""
    named = {view: handler for handler in handlers if not is_reserved(handler.name) for view in handler.views}
    rest = by_name(handlers, DEFAULT) or Handler(name=DEFAULT)
    return {view: named.get(view, rest) for view in views}


# ---- dictionaries ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """An input that a view reads as BATCH: where the view stands, how far it is gathered, what still can be read."""

    name: str
    relation: RelationId
    read: Version | None
    gathered: Version | None
    horizon: Version


def held(inputs: Iterable[BatchInput], newest: Version) -> dict[str, Version]:
    """The versions at which an ordinary epoch reads dictionaries: where they are.

    One that was never read is read now, as is one whose version is vacuumed: the view is recomputed then.
    """
    return {i.name: newest if i.read is None or i.read < i.horizon else i.read for i in inputs}


def advanced(inputs: Iterable[BatchInput]) -> dict[str, Version]:
    """The versions to which gathered changes bring dictionaries; without those that stay where they are."""
    return {i.name: i.gathered for i in inputs if i.read is not None and i.gathered is not None and i.gathered > i.read}


def touches(logged: Iterable[Collection[str]], used: Collection[str] | None) -> bool:
    """Whether logged changes concern a view that uses these columns (`None`: all of them)."""
    if used is None:
        return any(True for _ in logged)
    low = {name.lower() for name in used}
    return any(EVERYTHING in columns or any(c.lower() in low for c in columns) for columns in logged)


def behind_busy(inputs: Mapping[str, Collection[str]], busy: Collection[str]) -> set[str]:
    """Busy views and those that read them, at any distance: they wait, so that all of a handler's views agree."""
    waiting = set(busy)
    while True:
        more = {view for view, read in inputs.items() if view not in waiting and waiting & set(read)}
        if not more:
            return waiting
        waiting |= more


def with_inputs(inputs: Mapping[str, Collection[str]], names: Iterable[str]) -> set[str]:
    """Some views, and all views that they read, directly or through others."""
    wanted: set[str] = set()
    pending = [n.lower() for n in names]
    while pending:
        name = pending.pop()
        if name in inputs and name not in wanted:
            wanted.add(name)
            pending += inputs[name]
    return wanted
