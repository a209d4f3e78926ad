"""The service of compaction: which relations come to their turn, and what is left for the next step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import ebla
from ebla.base.services import Rank
from ebla.catalog import reads, relations
from ebla.errors import CatalogUnavailableError, ConflictError, StorageError
from ebla.node import compactor
from ebla.node.compactor import Compactor
from ebla.tables import fold
from ebla.tables.compaction import CompactionResult
from ebla.tables.context import Context
from ebla.tables.tiers import Due, merge
from support import folding
from support.warehouse import connect

PART = CompactionResult(relation="t", tablets=1, folded_runs=0, version=None, ended=False)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", auto_refresh=False) as database:
        database.sql("CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id))")
        yield database


@pytest.fixture
def service(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> Compactor:
    """Steps are taken by the test; nothing wakes the service."""
    monkeypatch.setattr(Compactor, "wanted", True)
    monkeypatch.setattr(db.context.services, "wake", lambda *names: None)
    monkeypatch.setattr(compactor, "LOOK_S", 0.0)
    return db.background.compactor


def test_a_fold_that_ended_early_goes_on_with_the_next_step(
    service: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor, "compact", lambda *_, **__: PART)
    monkeypatch.setattr(service, "due", lambda name: Due.FOLD)
    monkeypatch.setattr(service, "_gives_way", lambda: False)  # by now the epoch is over that it gave way to
    service.want("t")
    assert service.step(0.0) is not None
    assert list(service._relations) == ["t"]


@pytest.mark.parametrize("dropped", [True, False])
def test_a_relation_that_is_dropped_under_its_compaction_is_no_trouble(
    service: Compactor,
    db: ebla.Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    dropped: bool,
) -> None:
    def compacted(context: Context, name: str, **_: object) -> CompactionResult:
        if not dropped:
            raise StorageError("the disk is gone")
        db.sql("DROP TABLE t")
        with context.catalog.reading() as connection:
            relations.living_row(connection, target)
        raise AssertionError("it is dropped")

    with db.context.catalog.reading() as connection:
        target = reads.relation(connection, "t").id
    monkeypatch.setattr(compactor, "compact", compacted)
    monkeypatch.setattr(service, "due", lambda name: Due.FOLD)
    service.want("t")
    with caplog.at_level(logging.DEBUG, "ebla"):
        assert service.step(0.0) is None
    said = {record.levelno for record in caplog.records if "relation=t compaction" in record.message}
    assert said == {logging.DEBUG if dropped else logging.WARNING}


def test_relations_come_to_their_turn_whatever_the_others_have_to_do(
    service: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    for name in ("z", "a", "b"):
        service.want(name)

    def look(name: str) -> bool:
        looked.append(name)
        service.want(name)  # it is written to all the time
        return name != "z"

    monkeypatch.setattr(service, "_look_at", look)
    for _ in range(3):
        service.step(service._context.services.clock())
    assert looked == ["z", "a", "b", "z", "a", "b", "z"]


def test_no_other_relation_is_looked_at_behind_a_stop(service: Compactor, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def look(name: str) -> bool:
        looked.append(name)
        service._context.services.drop(service.name)
        return True

    monkeypatch.setattr(service, "_look_at", look)
    service.want("a")
    service.want("b")
    service.step(0.0)
    assert looked == ["a"]


def test_compaction_gives_way_to_a_flush(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    services, seen = db.context.services, list[bool]()

    def flush(*names: str) -> list[object]:
        seen.append(services.should_yield(Rank.COMPACTION))
        return []

    monkeypatch.setattr(db.epochs, "flush", flush)
    db.sql("FLUSH")
    assert seen == [True]
    assert not services.should_yield(Rank.COMPACTION)


def test_a_catalog_that_does_not_answer_makes_nothing_forgotten(
    service: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> set[str]:
        raise CatalogUnavailableError("expected a database that answers, found none")

    monkeypatch.setattr(service, "_every", gone)
    service.want("a")
    service.want_all()
    with pytest.raises(CatalogUnavailableError):
        service.step(0.0)
    assert list(service._relations) == ["a", compactor.EVERY]


def test_a_merge_gives_way_to_a_fold_that_began_before_it(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise merges, which take milliseconds, would have a fold of minutes start over for ever."""
    merged: list[int] = []
    real = fold.commit_fold

    def merge_before(*arguments: object) -> object:
        db.table("t").upsert([{"id": 1, "n": 1}])
        merged.append(merge(db.context, "t"))
        return real(*arguments)  # type: ignore[arg-type]

    for number in range(3):
        db.table("t").upsert([{"id": number, "n": number}])
    monkeypatch.setattr(fold, "commit_fold", merge_before)
    folding.fold(db, "t")
    assert merged == [0]
    monkeypatch.undo()
    db.table("t").upsert([{"id": 2, "n": 7}])
    assert merge(db.context, "t") == 1
    assert sorted(db.query("t").to_arrow()["n"].to_pylist()) == [0, 1, 7]


def test_a_fold_starts_over_if_a_merge_came_first(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        db.table("t").upsert([{"id": number, "n": number}])
    monkeypatch.setattr("ebla.tables.tiers.tx.compacts_before", lambda *_: False)
    real = fold.commit_fold
    monkeypatch.setattr(fold, "commit_fold", lambda *arguments: merge(db.context, "t") and real(*arguments))
    with pytest.raises(ConflictError, match="another compaction came first"):
        folding.fold(db, "t")
