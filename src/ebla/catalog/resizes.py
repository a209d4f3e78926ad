"""Resizes: the decision to have twice or half as many tablets, and which replicas have cut their runs for it.

A report holds as long as nothing is written that crosses the coming tablets: what crosses them takes the report of its
tablet back, in the same commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.catalog import memory, rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError
from ebla.model import topology_changes as t
from ebla.model.tablets import TokenRange, tablet_around, tablets_over
from ebla.model.topology import Resize, ResizeType

# ---- changes --------------------------------------------------------------------------------------------


def changes(state: State, update: t.ResizeUpdate) -> tuple[Change, ...]:
    match update:
        case t.SetResize(relation=relation, resize=resize):
            before = of_relation(state, relation)
            if resize.number < before.number:
                raise ConflictError(
                    f"resize of relation {relation}: expected a number of {before.number} or more, "
                    f"found {resize.number}; another decision came first"
                )
            return (_put(relation, resize), *(() if resize.type is before.type else (_forget_reports(relation),)))
        case t.ReportCut(relation=relation, host=host, tablets=tablets, number=number):
            now = of_relation(state, relation)
            if now.type is ResizeType.NONE or now.number != number:
                raise ConflictError(
                    f"resize of relation {relation}: expected number {number}, found {now.type} {now.number}; "
                    "it was revoked or finalized meanwhile"
                )
            key = {"relation_id": relation, "host_id": host}
            return tuple(
                rows.put(s.resize_reports, tablet_id=tablet, resize_seq_number=number, **key) for tablet in tablets
            )
        case _:
            assert_never(update)


def finalization(relation: RelationId, version: Version) -> tuple[Change, ...]:
    """A relation has its next tablet map. The number stays, and so does what was asked for."""
    return (
        rows.update(s.tablet_resizes, {"resize_type": ResizeType.NONE.value}, relation_id=relation),
        _forget_reports(relation),
        rows.update(s.topology_state, {"topology_version": version}),
    )


def forget(relation: RelationId) -> tuple[Change, ...]:
    """A relation is dropped."""
    return rows.delete(s.tablet_resizes, relation_id=relation), _forget_reports(relation)


def withdraw(
    state: State, relation: RelationId, written: Collection[TokenRange], *, folded: bool
) -> tuple[Change, ...]:
    """Reports that no longer hold because level 1 runs with these tokens were added, or, with `folded`, because level 0
    was folded in these tablets: those that become one must be folded up to one version."""
    kind = ResizeType.MERGE if folded else ResizeType.SPLIT
    if all(one.type is not kind for one in all_resizes(state).values()):
        return ()
    base = base_of(state, relation)
    if of_relation(state, base).type is not kind:
        return ()
    tablets = _tablets(state, base)
    found = {
        tablet
        for tokens in written
        if folded or tablet_around(tokens, tablets * 2) is None
        for tablet in tablets_over(tokens, tablets)
    }
    return (rows.delete(s.resize_reports, relation_id=base, tablet_id=found),) if found else ()


def _put(relation: RelationId, resize: Resize) -> Change:
    return rows.put(
        s.tablet_resizes,
        relation_id=relation,
        resize_type=resize.type.value,
        resize_seq_number=resize.number,
        tablets=resize.tablets,
        request_id=resize.request,
    )


def _forget_reports(relation: RelationId) -> Change:
    return rows.delete(s.resize_reports, relation_id=relation)


# ---- reads ----------------------------------------------------------------------------------------------


def all_resizes(state: State) -> Mapping[RelationId, Resize]:
    """The last resize of each relation that has had one."""
    return memory.remembered(state, "resizes", lambda: _read(state))


def _read(state: State) -> dict[RelationId, Resize]:
    return {
        RelationId(row.relation_id): Resize(
            type=ResizeType(row.resize_type),
            number=row.resize_seq_number,
            tablets=row.tablets,
            request=row.request_id,
        )
        for row in rows.find(state, s.tablet_resizes, "relation_id")
    }


def is_any_decided(state: State) -> bool:
    """Whether a resize is decided that is neither finalized nor revoked."""
    return any(one.type is not ResizeType.NONE for one in all_resizes(state).values())


def of_relation(state: State, relation: RelationId) -> Resize:
    return all_resizes(state).get(relation, Resize())


def base_of(state: State, relation: RelationId) -> RelationId:
    """The relation whose tablet map it has: its own, or of an index its base's."""
    row = rows.one(state, s.index_states, index_id=relation)
    return relation if row is None else RelationId(row.base_id)


def coming_tablets(state: State, relation: RelationId) -> int | None:
    """How many tablets a relation or an index will have when the split that is decided is finalized."""
    if all(one.type is not ResizeType.SPLIT for one in all_resizes(state).values()):
        return None
    base = base_of(state, relation)
    return _tablets(state, base) * 2 if of_relation(state, base).type is ResizeType.SPLIT else None


def _tablets(state: State, relation: RelationId) -> int:
    row = rows.one(state, s.relations, relation_id=relation)
    return 1 if row is None else int(row.tablets)


def reports(state: State) -> dict[RelationId, dict[tuple[TabletId, NodeId], int]]:
    """The number of the last resize that each replica has cut its runs for."""
    found: dict[RelationId, dict[tuple[TabletId, NodeId], int]] = {}
    for row in rows.find(state, s.resize_reports):
        of_one = found.setdefault(RelationId(row.relation_id), {})
        of_one[TabletId(row.tablet_id), NodeId(row.host_id)] = row.resize_seq_number
    return found
