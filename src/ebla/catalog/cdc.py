"""Generations of change streams: the rules by which commits make them, and their reads.

Theory of operation. A *stream* is the changes of a range of tokens of a table or a view; a *generation* is its streams
from a version on, one for each tablet. A new tablet map and a new node begin one in the same commit. The streams
of a generation have what is committed from its version on and before the next one's; so a reader that takes the
generations in order has each change once. A generation is committed first and published later, when nothing waits for
that; what it holds does not depend on it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebla.base.ids import RelationId, Version
from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State
from ebla.errors import UnknownNameError
from ebla.model.relation import Kind
from ebla.model.tablets import TokenRange, token_ranges

KEY = "topology"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The changes of a range of tokens, from one version on and before another."""

    id: str
    generation: str
    tokens: TokenRange
    begun: Version
    ended: Version | None
    """The version of the next generation, if there is one."""

    def within(self, since: Version, until: Version) -> tuple[Version, Version]:
        """The part of `(since, until]` in which changes are of this stream; both ends equal where it has none."""
        start = max(since, Version(self.begun - 1))
        last = until if self.ended is None else min(until, Version(self.ended - 1))
        return (start, last) if start < last else (start, start)


# ---- changes --------------------------------------------------------------------------------------------


def begin(
    relation: RelationId, tablets: int, version: Version, now: int, *, published: bool, generation: str | None = None
) -> tuple[Change, ...]:
    """The generation of a relation that has this number of tablets from this version on."""
    generation = generation or generation_id(relation, version)
    row = {
        "relation_id": relation,
        "begin_version": version,
        "generation_id": generation,
        "timestamp": now,
        "published": published,
    }
    streams = [
        {
            "relation_id": relation,
            "generation_id": generation,
            "stream_id": f"{generation}/{number}",
            "token_min": tokens.first,
            "token_max": tokens.last,
        }
        for number, tokens in enumerate(token_ranges(tablets))
    ]
    return rows.insert(s.cdc_generations, [row]), rows.insert(s.cdc_streams, streams)


def generation_id(relation: RelationId, version: Version) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"cdc generation of {relation} at {version}"))


def after_resize(state: State, relation: RelationId, tablets: int, version: Version, now: int) -> tuple[Change, ...]:
    """A relation has another tablet map."""
    begun = begin(relation, tablets, version, now, published=False)
    return (*begun, _note(state, [generation_id(relation, version)], now))


def after_join(state: State, request: int | None, version: Version, now: int) -> tuple[Change, ...]:
    """A node has come, by a request: every relation begins the generation that this has announced."""
    if request is not None:
        return after_request(state, request, None, version, now)
    return _generations(state, {one: generation_id(one, version) for one in _living(state)}, version, now)


def after_request(
    state: State, request: int, relation: RelationId | None, version: Version, now: int
) -> tuple[Change, ...]:
    """A new generation was asked for: of one relation, or of all."""
    return _generations(state, announcement(state, request, relation), version, now)


def announcement(state: State, request: int, relation: RelationId | None) -> dict[RelationId, str]:
    """The generations that a request will begin; their ids are known before they are committed."""
    return {
        one: str(uuid.uuid5(uuid.NAMESPACE_OID, f"cdc generation of {one} by request {request}"))
        for one in _living(state)
        if relation in (None, one)
    }


def _living(state: State) -> dict[RelationId, int]:
    """The tables and views, with their tablets."""
    kinds = frozenset({Kind.TABLE.value, Kind.VIEW.value})
    living = rows.find(state, s.relations, "relation_id", dropped_version=None, kind=kinds)
    return {RelationId(row.relation_id): row.tablets for row in living}


def _generations(state: State, new: Mapping[RelationId, str], version: Version, now: int) -> tuple[Change, ...]:
    if not new:
        return ()
    tablets = _living(state)
    begun = (
        change
        for one, generation in new.items()
        for change in begin(one, tablets[one], version, now, published=False, generation=generation)
    )
    return (*begun, _note(state, list(new.values()), now))


def _note(state: State, begun: Sequence[str], now: int) -> Change:
    """What the topology says of the newest generation, and of those that are not published."""
    waiting = [*unpublished_generations(state), *begun]
    newest = {"current_cdc_generation_timestamp": now, "current_cdc_generation_uuid": waiting[-1]}
    return rows.update(s.topology_state, {**newest, "unpublished_cdc_generations": json.dumps(waiting)}, key=KEY)


def publish() -> tuple[Change, ...]:
    """Every generation that is committed is known to readers."""
    return (
        rows.update(s.cdc_generations, {"published": True}, published=False),
        rows.update(s.topology_state, {"unpublished_cdc_generations": None}, key=KEY),
    )


def forget(state: State, relation: RelationId, horizon: Version) -> tuple[Change, ...]:
    """Forget all generations up to the horizon but the last: versions before the horizon cannot be read."""
    found = rows.find(state, s.cdc_generations, "begin_version", relation_id=relation)
    old = [row for row in found if row.begin_version <= horizon][:-1]
    return tuple(
        rows.delete(table, relation_id=relation, generation_id=frozenset(row.generation_id for row in old))
        for table in ((s.cdc_streams, s.cdc_generations) if old else ())
    )


# ---- reads ----------------------------------------------------------------------------------------------


def unpublished_generations(state: State) -> list[str]:
    """The generations that are committed and not published, in order."""
    row = rows.one(state, s.topology_state, key=KEY)
    return [] if row is None else json.loads(row.unpublished_cdc_generations or "[]")


def stream(state: State, relation: RelationId, name: str, stream_id: str) -> Stream:
    found = rows.one(state, s.cdc_streams, relation_id=relation, stream_id=stream_id)
    if found is None:
        raise UnknownNameError(
            f"{name}: expected one of its change streams, found {stream_id!r}; system.cdc_streams lists them"
        )
    generations = rows.find(state, s.cdc_generations, "begin_version", relation_id=relation)
    at = next(number for number, row in enumerate(generations) if row.generation_id == found.generation_id)
    after = generations[at + 1 : at + 2]
    return Stream(
        id=stream_id,
        generation=found.generation_id,
        tokens=TokenRange(found.token_min, found.token_max),
        begun=Version(generations[at].begin_version),
        ended=Version(after[0].begin_version) if after else None,
    )
