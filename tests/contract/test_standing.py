"""Whether an input was written to since a part of a view was built."""

from __future__ import annotations

from ebla.base.ids import Version
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.views.epoch.standing import written_between
from support.catalogs import add, commit, create, run


def test_below_the_horizon_an_input_counts_as_written(catalog: Catalog):
    orders = create(catalog, "orders", tablets=1)
    began = catalog.version()
    first = run(orders.id)
    add(catalog, first)
    wrote = catalog.version()

    def written(since: Version, until: Version) -> bool:
        with catalog.reading() as connection:
            return written_between(connection, {"orders": orders}, since, until)

    assert (written(began, wrote), written(wrote, wrote)) == (True, False)
    commit(catalog, c.EndRuns(relation=orders.id, runs=frozenset({first.id})))
    commit(catalog, c.SetHorizon(relation=orders.id, horizon=catalog.version()))
    now = catalog.version()
    assert (written(began, wrote), written(now, now)) == (True, False), "the run is forgotten, the write is not"
