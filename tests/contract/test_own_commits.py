"""A process knows which relations its own commits have changed, and of others' that it does not."""

from __future__ import annotations

import contextlib

from ebla.base.ids import RelationId, Version
from ebla.catalog.own_commits import KEPT_MAX, OwnCommits, manifests_changed
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.relation import RunState
from ebla.model.tablets import ALL
from support.catalogs import add, commit, create, exclusively, relation, run


def test_commits_say_which_manifests_they_changed(catalog: Catalog):
    create(catalog, "orders")
    create(catalog, "items")
    orders, items = relation(catalog, "orders").id, relation(catalog, "items").id
    before = catalog.version()
    first = run(orders)
    at = add(catalog, first)
    assert catalog.own_commits.changed(before, at) == frozenset({orders})
    added = add(catalog, run(items))
    assert catalog.own_commits.changed(before, added) == frozenset({orders, items})
    assert catalog.own_commits.changed(at, added) == frozenset({items})
    assert catalog.own_commits.changed(added, added) == frozenset()
    progress = commit(catalog, c.SetProgress(name="here", value="1")).version
    assert catalog.own_commits.changed(added, progress) == frozenset()
    ended = commit(catalog, c.EndRuns(relation=orders, runs=frozenset({first.id}))).version
    assert catalog.own_commits.changed(progress, ended) == frozenset({orders})


def test_of_commits_of_other_processes_it_is_not_known(catalog: Catalog):
    create(catalog, "orders")
    orders = relation(catalog, "orders").id
    before = catalog.version()
    with contextlib.closing(Catalog.open(catalog.where)) as elsewhere:
        own, other = add(catalog, run(orders)), add(elsewhere, run(orders))
        assert catalog.own_commits.changed(before, own) == frozenset({orders})
        assert catalog.own_commits.changed(before, other) is None
        assert elsewhere.own_commits.changed(own, other) == frozenset({orders})
    assert catalog.own_commits.changed(other, before) is None, "a reader with an older snapshot"


def test_a_change_of_shape_may_have_changed_any(catalog: Catalog):
    create(catalog, "orders")
    orders = relation(catalog, "orders").id
    before = catalog.version()
    after = exclusively(catalog, c.TruncateRelation(relation=orders)).version
    assert catalog.own_commits.changed(before, after) is None
    assert manifests_changed([c.SetRunState(runs=frozenset(), state=RunState.NORMAL)]) is None
    assert manifests_changed([c.AddCopies(relation=orders, copies=())]) == frozenset({orders})
    assert manifests_changed([c.SetCutoff(relation=orders, tablets=(ALL,), cutoff=Version(1))]) == frozenset({orders})


def test_only_the_last_commits_are_kept():
    kept = OwnCommits()
    for version in range(1, KEPT_MAX + 2):
        ended = c.EndRuns(relation=RelationId(version), runs=frozenset())
        kept.note(Version(version), c.Decision(reason="end", updates=(ended,)))
    assert kept.changed(Version(0), Version(2)) is None
    assert len(kept.changed(Version(1), Version(KEPT_MAX + 1)) or ()) == KEPT_MAX
