"""What no version that can be read needs is forgotten, and nothing else."""

from __future__ import annotations

import pytest

from ebla.base.ids import TabletId, Version
from ebla.catalog import leftovers, reads, rows
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, TransactionClosedError
from ebla.model import changes as c
from ebla.model.relation import Relation
from ebla.model.scopes import DROPPED, SCHEMA, of_relation, of_tablet
from ebla.model.tablets import TokenRange, token_range
from ebla.relations.views import progress_name
from support.catalogs import (
    COLUMNS,
    add,
    column,
    commit,
    create,
    create_index,
    dump,
    exclusively,
    relation,
    run,
    snapshot,
)

IN_MEMORY = True


def count(catalog: Catalog, table: str, target: Relation) -> int:
    with catalog.reading() as connection:
        return len(rows.find(connection, s.metadata.tables[table], relation_id=target.id))


def forget(catalog: Catalog, target: Relation, horizon: int) -> None:
    commit(catalog, c.SetHorizon(relation=target.id, horizon=Version(horizon)))


def forget_dropped(catalog: Catalog, until: int) -> frozenset[int]:
    with catalog.writing() as connection:
        return frozenset(leftovers.forget_dropped(connection, Version(until), progress_name))


def drop(catalog: Catalog, target: Relation) -> Version:
    return exclusively(catalog, c.DropRelation(relation=target.id)).version


def folds(catalog: Catalog, target: Relation) -> dict[TokenRange, int]:
    with catalog.reading() as connection:
        found = rows.find(connection, s.folds, "begin_version", relation_id=target.id)
        return {TokenRange(row.token_min, row.token_max): row.cutoff for row in found}


# ---- truncations ----------------------------------------------------------------------------------------


def test_the_last_truncation_stays_and_those_behind_the_horizon(catalog: Catalog):
    target = create(catalog, "orders")
    cuts = [commit(catalog, c.TruncateRelation(relation=target.id)).version for _ in range(5)]
    forget(catalog, target, cuts[2])
    with catalog.reading() as connection:
        assert reads.truncated_between(connection, target, cuts[2], cuts[4]) == cuts[3:]
        assert reads.newest_write(connection, target.id) == cuts[4]
    forget(catalog, target, catalog.version())
    with catalog.reading() as connection:
        assert reads.truncated_between(connection, target, Version(0), cuts[4]) == cuts[4:]
        assert reads.newest_write(connection, target.id) == cuts[4], "a stream must not go back"
    assert count(catalog, "truncations", target) == 1


# ---- columns --------------------------------------------------------------------------------------------


def test_columns_are_forgotten_with_the_versions_that_had_them_and_their_names_in_files_never(catalog: Catalog):
    target = create(catalog, "orders")
    changes = [
        exclusively(catalog, c.SetColumns(relation=target.id, columns=(*COLUMNS, column(f"extra{n}")))).version
        for n in range(6)
    ]
    before = {v: relation(catalog, "orders", v).columns for v in changes}
    with catalog.reading() as connection:
        names = reads.physical_names(connection, target.id)
    forget(catalog, target, changes[3])
    assert {v: relation(catalog, "orders", v).columns for v in changes[3:]} == {v: before[v] for v in changes[3:]}
    forget(catalog, target, catalog.version())
    assert relation(catalog, "orders").columns == before[changes[-1]]
    with catalog.reading() as connection:
        assert reads.physical_names(connection, target.id) == names
    assert count(catalog, "columns", target) == len(names)


# ---- folds ----------------------------------------------------------------------------------------------


def fold(catalog: Catalog, target: Relation, tablets: int, numbers: range | None = None) -> Version:
    """Everything up to now is folded, in all tablets or in some."""
    cut = tuple(token_range(n, tablets) for n in (range(tablets) if numbers is None else numbers))
    return commit(catalog, c.SetCutoff(relation=target.id, tablets=cut, cutoff=catalog.version())).version


def resize(catalog: Catalog, target: Relation, tablets: int) -> Version:
    return exclusively(catalog, c.SetTabletMap(relation=target.id, tablets=tablets)).version


def test_folds_of_old_maps_go_when_those_of_newer_ones_say_as_much(catalog: Catalog):
    target = create(catalog, "orders", tablets=4)
    for tablets in (8, 2, 16, 4, 1, 8):
        add(catalog, run(target.id))
        fold(catalog, target, relation(catalog, "orders").tablets)
        resize(catalog, target, tablets)
    half = fold(catalog, target, 8, range(4))
    cutoffs = snapshot(catalog, target).cutoffs
    old = snapshot(catalog, target, half - 1).cutoffs
    forget(catalog, target, half - 1)
    assert snapshot(catalog, target).cutoffs == cutoffs
    assert snapshot(catalog, target, half - 1).cutoffs == old
    forget(catalog, target, catalog.version())
    assert snapshot(catalog, target).cutoffs == cutoffs
    assert set(folds(catalog, target)) == {token_range(0, 1), *(token_range(n, 8) for n in range(4))}
    fold(catalog, target, 8, range(4, 8))
    forget(catalog, target, catalog.version())
    assert set(folds(catalog, target)) == {token_range(n, 8) for n in range(8)}
    assert len({*snapshot(catalog, target).cutoffs.values()}) == 2


def test_a_fold_stays_while_a_version_with_larger_tablets_can_be_read(catalog: Catalog):
    target = create(catalog, "orders", tablets=1)
    before = fold(catalog, target, 1)
    resize(catalog, target, 4)
    fold(catalog, target, 4)
    then, now = snapshot(catalog, target, before).cutoffs, snapshot(catalog, target).cutoffs
    forget(catalog, target, before)
    assert (snapshot(catalog, target, before).cutoffs, snapshot(catalog, target).cutoffs) == (then, now)
    forget(catalog, target, catalog.version())
    assert snapshot(catalog, target).cutoffs == now
    assert count(catalog, "folds", target) == 4
    assert count(catalog, "tablet_maps", target) == 1


# ---- relations that were dropped ------------------------------------------------------------------------

OF_RELATIONS = ("relations", "columns", "tablets", "tablet_maps", "folds", "truncations")


def test_nothing_is_left_of_a_relation_that_was_dropped_long_ago(catalog: Catalog):
    kept, target = create(catalog, "kept"), create(catalog, "orders")
    index = create_index(catalog, target)
    add(catalog, run(target.id))
    exclusively(catalog, c.SetColumns(relation=target.id, columns=(*COLUMNS, column("extra"))))
    commit(catalog, c.TruncateRelation(relation=target.id))
    fold(catalog, target, 2)
    dropped = drop(catalog, target)
    before = {name: count(catalog, name, kept) for name in OF_RELATIONS}
    assert forget_dropped(catalog, dropped - 1) == frozenset()
    assert forget_dropped(catalog, dropped) == frozenset({index}), "runs are left"
    forget(catalog, target, dropped)
    assert forget_dropped(catalog, dropped) == frozenset({target.id})
    assert forget_dropped(catalog, catalog.version()) == frozenset()
    for name in OF_RELATIONS:
        assert count(catalog, name, target) == 0, name
        assert count(catalog, name, kept) == before[name], name
    create(catalog, "orders")
    assert relation(catalog, "orders").id not in (target.id, index), "a number is given once"


def guards(catalog: Catalog) -> dict[str, int]:
    with catalog.reading() as connection:
        return {row.scope: row.version for row in rows.find(connection, s.guards)}


def test_a_decision_that_was_made_from_a_relation_that_is_forgotten_is_refused(catalog: Catalog):
    """Its guard is gone; one for all of those that were dropped stands in for it."""
    target, other = create(catalog, "orders"), create(catalog, "other")
    at = catalog.version()
    scopes = of_relation(target.id), of_tablet(target.id, TabletId(1))
    exclusively(catalog, c.SetRelationComment(relation=target.id, comment="seen"))
    forget_dropped(catalog, drop(catalog, target))
    assert guards(catalog).keys() & set(scopes) == set()
    assert guards(catalog)[DROPPED] == guards(catalog)[SCHEMA]
    before = dump(catalog)
    for scope in scopes:
        require = c.ExclusiveVersionIs(version=at, scopes=frozenset({scope}))
        late = c.Decision(reason="late", requires=(require,), updates=(), exclusive=True, moves=frozenset({SCHEMA}))
        with pytest.raises(ConflictError, match=f"{scope}: expected version {at}"):
            catalog.commit(late)
    assert dump(catalog) == before
    exclusively(catalog, c.SetRelationComment(relation=other.id, comment="fine"))


def test_what_is_kept_does_not_grow_with_what_came_and_went(catalog: Catalog):
    kept = create(catalog, "kept")

    def year() -> dict[str, int]:
        for n in range(4):
            target = create(catalog, f"t{n}", tablets=4)
            create_index(catalog, target, f"i{n}")
            add(catalog, run(target.id))
            commit(catalog, c.TruncateRelation(relation=target.id))
            commit(catalog, c.TruncateRelation(relation=kept.id))
            fold(catalog, kept, relation(catalog, "kept").tablets)
            resize(catalog, kept, (1, 2, 4, 8)[n])
            exclusively(catalog, c.SetColumns(relation=kept.id, columns=(*COLUMNS, column("x"))))
            dropped = drop(catalog, target)
            forget(catalog, target, dropped)
        forget(catalog, kept, catalog.version())
        forget_dropped(catalog, catalog.version())
        with catalog.reading() as connection:
            return {name: len(rows.find(connection, s.metadata.tables[name])) for name in (*OF_RELATIONS, "guards")}

    first = year()
    for _ in range(3):
        assert year() == first


@pytest.mark.database
def test_the_relations_of_which_something_can_be_forgotten_are_found(catalog: Catalog):
    untouched, cut, altered, written = (create(catalog, name) for name in ("untouched", "cut", "altered", "written"))
    commit(catalog, c.TruncateRelation(relation=cut.id))
    exclusively(catalog, c.SetColumns(relation=altered.id, columns=COLUMNS[:1]))
    add(catalog, run(written.id))

    def found() -> set[int]:
        with catalog.reading() as connection:
            return {int(one) for one in leftovers.oldest(connection, catalog.version())}

    assert found() == {altered.id}, "of its first column there is a newer description"
    commit(catalog, c.TruncateRelation(relation=cut.id))
    commit(catalog, c.TruncateRelation(relation=written.id))
    assert found() == {altered.id, cut.id, written.id}
    for target in (untouched, cut, altered, written):
        forget(catalog, target, catalog.version())
    assert found() == set()


# ---- sessions -------------------------------------------------------------------------------------------


def test_sessions_that_were_closed_are_forgotten_and_stay_closed(catalog: Catalog):
    for name in ("first", "second", "third"):
        commit(catalog, c.OpenSession(session=name, purpose="copy"))
    commit(catalog, c.CloseSession(session="first"))
    until = catalog.version()
    commit(catalog, c.CloseSession(session="second"))
    with catalog.writing() as connection:
        assert leftovers.forget_sessions(connection, until) == 1
    with catalog.reading() as connection:
        assert {row.session_id for row in rows.find(connection, s.sessions)} == {"second", "third"}
    late = c.Decision(reason="late", requires=(c.SessionOpen(session="first"),), updates=(), exclusive=True)
    with pytest.raises(TransactionClosedError, match="session first: expected open, found closed"):
        catalog.commit(late)
