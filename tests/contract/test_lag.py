"""The lag of epochs is published for other processes, and holds for a while."""

from __future__ import annotations

from ebla.catalog import lag as lags
from ebla.catalog.store import Catalog
from support.catalogs import SECOND_US, Clock, commit, statements


def test_a_lag_is_seen_until_it_runs_out(catalog: Catalog, clock: Clock):
    assert lags.published_s(catalog) == 0.0
    lags.publish(catalog, 70.0)
    assert lags.published_s(catalog) == 70.0
    clock.advance(SECOND_US)
    assert lags.published_s(catalog) == 71.0
    clock.advance(lags.VALID_US)
    assert lags.published_s(catalog) == 0.0, "of a process that was killed"


def test_a_steady_lag_stays_what_it_is(catalog: Catalog, clock: Clock):
    for _ in range(60):
        lags.publish(catalog, 1.5)
        clock.advance(SECOND_US)
    assert lags.published_s(catalog) == 2.5
    lags.publish(catalog, 500.0)  # a process that is killed now
    lags.publish(catalog, 2.0)
    assert lags.published_s(catalog) == 2.0


def test_a_lag_that_is_over_is_withdrawn(catalog: Catalog):
    lags.withdraw(catalog)
    lags.publish(catalog, 70.0)
    lags.withdraw(catalog)
    assert lags.published_s(catalog) == 0.0


def test_asking_takes_one_statement_and_a_commit_none_more(catalog: Catalog):
    def sent_by_a_commit() -> int:
        with statements(catalog) as sent:
            commit(catalog)
        return len(sent)

    before = sent_by_a_commit()
    lags.publish(catalog, 70.0)
    assert sent_by_a_commit() == before
    with statements(catalog) as sent:
        lags.published_s(catalog)
    assert len(sent) == 1
