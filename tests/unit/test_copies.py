"""Which tablets a run has rows of, and which nodes lack it; and files under several roots."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebla.base.ids import NodeId, RelationId, TabletId, TransactionId
from ebla.errors import StorageError, StorageFullError
from ebla.model import copies as model
from ebla.model.lifecycle.tablet import Stage
from ebla.model.relation import Move
from ebla.model.tablets import spread_of, spread_over, token_range
from ebla.storage import copies
from ebla.storage.copying import Copier, Lack
from ebla.storage.files import MARKER, Owner, Root
from ebla.storage.node_files import NodeFiles
from support.manifests import run_of, table_of

A, B, C = map(NodeId, "abc")
ROWS = pa.table({"id": [1, 2, 3]})


@given(st.sets(st.integers(0, 15), min_size=1), st.sampled_from([1, 4, 16, 64]))
def test_a_spread_names_the_same_tokens_in_every_map(having: set[int], tablets: int):
    spread = spread_of(having, 16)
    assert spread_over(spread, 16) == sorted(having)
    coming = {t * tablets // 16 for t in having} if tablets <= 16 else {4 * t + i for t in having for i in range(4)}
    assert spread_over(spread, tablets) == sorted(coming)


def test_a_node_lacks_a_run_of_its_tablets():
    table = replace(table_of(4), placement=((A, B), (B, C), (C, A), (A, B)))
    one = run_of(table, "one", 1, tablet=1)
    assert model.missing(table, replace(one, nodes=(B,))) == {C: 1}
    every = replace(run_of(table, "all", 1), nodes=(A, B))
    assert model.missing(table, every) == {C: 1}
    assert model.missing(table, replace(every, spread=spread_of([0, 3], 4))) == {}
    assert model.missing(table, replace(every, spread=spread_of([2], 4))) == {C: 2}


def test_a_run_from_before_a_split_is_in_the_tablets_of_its_tokens_alone():
    table = replace(table_of(4), placement=((A,), (A,), (B,), (C,)))
    first, last = token_range(2, 4).first, token_range(3, 4).first
    run = replace(run_of(table, "one", 1), token_min=first, token_max=last, spread=spread_of([0], 1), nodes=(B,))
    assert model.tablets_with_rows(table, run) == [2, 3]
    assert model.missing(table, run) == {C: 3}


def test_the_halves_of_a_tablet_in_transition_are_written_where_it_is():
    moves = {TabletId(1): Move(Stage.USE_NEW, leaving=A, pending=C)}
    table = replace(table_of(2), placement=((A, B), (A, B)), moves=moves)
    coming = table.in_map(4)
    assert [coming.writes_to(TabletId(one)) for one in range(4)] == [(A, B), (A, B), (C, B), (C, B)]


def test_few_rows_beside_a_move_go_to_no_more_files_than_without():
    placement = ((A,), (B,), (B,), (C,))
    table = replace(table_of(4), placement=placement, moves={TabletId(1): Move(Stage.STREAMING, leaving=B, pending=A)})
    assert table.replica_sets() == {(A,): [0], (A, B): [1], (B,): [2], (C,): [3]}
    every = list(map(TabletId, range(4)))
    assert table.joint_sets(every) == {(A, B): [0, 1, 2], (C,): [3]}
    assert table.joint_sets([tablet for tablet in every if tablet != 1]) == table.replica_sets(), (
        "without rows of it nothing goes farther"
    )
    for stage in (Stage.ALLOW_WRITE_BOTH_READ_OLD, Stage.USE_NEW):
        other = replace(table, moves={TabletId(1): Move(stage, leaving=B, pending=A)})
        assert other.joint_sets(every) == other.replica_sets()


@given(st.data())
def test_few_rows_beside_moves_reach_every_replica_that_they_would_reach_by_themselves(data: st.DataObject):
    nodes = st.lists(st.sampled_from(list(map(NodeId, "abcde"))), min_size=1, max_size=3, unique=True).map(tuple)
    placement = tuple(data.draw(st.lists(nodes, min_size=8, max_size=8)))
    stages = st.sampled_from([None, *Stage])
    moves = {
        TabletId(tablet): Move(stage, leaving=placement[tablet][0], pending=NodeId("f"))
        for tablet in range(8)
        if (stage := data.draw(stages)) is not None
    }
    table = replace(table_of(8), placement=placement, moves=moves)
    having = data.draw(st.sets(st.integers(0, 7).map(TabletId), min_size=1))
    found = table.joint_sets(having)
    assert sorted(tablet for tablets in found.values() for tablet in tablets) == list(range(8))
    assert found.keys() <= table.replica_sets().keys()
    for over, tablets in found.items():
        assert all(set(table.writes_to(tablet)) <= set(over) for tablet in tablets)
        # A copy that no tablet of the run needs would stay for ever: no move's end would take it.
        needed = {node for tablet in having & set(tablets) for node in table.writes_to(tablet)}
        assert not having & set(tablets) or needed == set(over)


@pytest.fixture
def roots(tmp_path: Path) -> dict[NodeId, Root]:
    found = {node: Root(str(tmp_path / node), fsync=False, owner=Owner("c", node)) for node in (A, B, C)}
    for node in found:
        Root(str(tmp_path / node)).claim({"cluster": "c", "node": node})
    return found


def lose(root: Root, how: str) -> None:
    place = Path(root.location)
    place.rename(f"{place}.away")
    if how == "file":
        place.write_text("no directory")
    elif how == "unmounted":
        place.mkdir()


@pytest.mark.parametrize("how", ["missing", "file", "unmounted"])
def test_a_root_that_is_gone_takes_no_part(roots: dict[NodeId, Root], how: str):
    lose(roots[A], how)
    size, done = copies.write(ROWS, "r1/t1-0.parquet", roots, (A, B, C), least=2)
    assert (done, roots[B].size("r1/t1-0.parquet")) == ((B, C), size)
    assert not (Path(roots[A].location) / "r1").exists()
    assert copies.copy(roots[B], "r1/t1-0.parquet", roots, (A, B, C), least=2) == (B, C)
    lose(roots[B], how)
    with pytest.raises(StorageError, match=f"expected copies on at least 2 of 3 nodes, found 1: node a: .*{MARKER}"):
        copies.write(ROWS, "r1/t2-0.parquet", roots, (A, B, C), least=2)
    with pytest.raises(StorageError, match="expected the storage root of a node"):
        copies.write(ROWS, "r1/t3-0.parquet", roots, (A,), least=1)


def test_copies_are_flushed_at_the_same_time(roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch):
    """Each waits in its flush for all others: one after the other they would wait for ever."""
    together = threading.Barrier(3)
    monkeypatch.setattr(Root, "flush", lambda root, path: together.wait(150))
    size, done = copies.write(ROWS, "r1/t1-0.parquet", roots, (A, B, C), least=2)
    assert (done, {root.size("r1/t1-0.parquet") for root in roots.values()}) == ((A, B, C), {size})
    assert pq.read_table(f"{roots[C].location}/r1/t1-0.parquet").equals(ROWS)
    together = threading.Barrier(2)
    monkeypatch.setattr(Root, "flush", lambda root, path: together.wait(150))
    assert copies.copy(roots[A], "r1/t1-0.parquet", roots, (A, B, C), least=2) == (A, B, C)


def test_a_node_that_is_left_out_is_named_once(roots: dict[NodeId, Root], caplog: pytest.LogCaptureFixture):
    def write() -> list[str]:
        caplog.clear()
        copies.write(ROWS, "r1/t1-0.parquet", roots, (A, B, C), least=2)
        return [record.levelname for record in caplog.records]

    caplog.set_level("DEBUG", "ebla.storage")
    lose(roots[A], "missing")
    assert [write(), write()] == [["WARNING"], ["DEBUG"]]
    Path(f"{roots[A].location}.away").rename(roots[A].location)
    assert write() == []
    lose(roots[A], "missing")
    assert write() == ["WARNING"]


def test_a_copy_is_compared_with_what_was_read(roots: dict[NodeId, Root]):
    size, _ = copies.write(ROWS, "r1/t1-0.parquet", roots, (A,), least=1)
    copies.copy_checked(roots[A], roots[B], "r1/t1-0.parquet", size, beside="r1/t2-copy0.parquet")
    both = [(Path(roots[node].location) / "r1/t1-0.parquet").read_bytes() for node in (A, B)]
    assert both[0] == both[1]
    with pytest.raises(StorageError, match=f"expected a copy of {size + 1} bytes .* found {size} bytes;"):
        copies.copy_checked(roots[A], roots[C], "r1/t1-0.parquet", size + 1, beside="r1/t2-copy1.parquet")
    assert not list(Path(roots[C].location).rglob("*.parquet"))
    with pytest.raises(StorageError):  # what is there already stays
        copies.copy_checked(roots[A], roots[B], "r1/t1-0.parquet", size + 1, beside="r1/t2-copy2.parquet")
    assert [file.read_bytes() for file in Path(roots[B].location).rglob("*.parquet")] == both[:1]


@pytest.mark.parametrize("near", [True, False], ids=["by the kernel", "by blocks"])
@pytest.mark.parametrize("block", [100, 2**18], ids=["many blocks", "one block"])
@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (lambda content: content, None),
        (lambda content: bytes([content[0] ^ 1]) + content[1:], "0"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), r"\d+"),
        (lambda content: content[:-1], r"\d+"),
        (lambda content: content[:-1] + bytes(2), r"\d+"),
        (lambda content: b"", "0"),
    ],
    ids=["same", "first byte", "last byte", "shorter", "longer", "empty"],
)
def test_a_disk_that_stores_other_bytes_gets_no_copy(
    roots: dict[NodeId, Root],
    monkeypatch: pytest.MonkeyPatch,
    near: bool,
    block: int,
    stored: Callable[[bytes], bytes],
    found: str | None,
):
    size, _ = copies.write(ROWS, "r1/t1-0.parquet", roots, (A,), least=1)
    roots[B].local = near
    monkeypatch.setattr(copies, "NEAR_BLOCK_BYTES", block)
    monkeypatch.setattr(copies, "BLOCK_BYTES", block)

    def store(root: Root, path: str) -> None:
        file = Path(root.location) / path
        file.write_bytes(stored(file.read_bytes()))

    monkeypatch.setattr(Root, "flush_bytes", store)
    copy = partial(copies.copy_checked, roots[A], roots[B], "r1/t1-0.parquet", size, beside="r1/t2-copy0.parquet")
    if found is None:
        copy()
        both = [(Path(roots[node].location) / "r1/t1-0.parquet").read_bytes() for node in (A, B)]
        assert both[0] == both[1]
        return
    with pytest.raises(StorageError, match=rf"found other bytes behind the first {found}; it was removed"):
        copy()
    assert not list(Path(roots[B].location).rglob("*.parquet"))


def test_of_two_claims_the_first_counts_and_leaves_one_file(tmp_path: Path):
    root = Root(str(tmp_path / "root"))
    first = {"cluster": "c", "node": "a", "name": "x"}
    assert root.claim(first) == first
    assert root.claim({"cluster": "c", "node": "b", "name": "x"}) == first
    assert [path for path, _, _ in root.listing()] == [MARKER]


@pytest.mark.parametrize("said", ["", "{", "[]", '{"node": "a"}', "\x00"])
def test_a_damaged_marker_names_no_owner(tmp_path: Path, said: str):
    (tmp_path / MARKER).write_text(said)
    with pytest.raises(StorageError, match=r"expected the ids of a catalog and a node, found .*; bring the file back"):
        Root(str(tmp_path)).owner()
    assert not Root(str(tmp_path), owner=Owner("c", A)).is_writable


# ---- files that nodes lack ------------------------------------------------------------------------------


def test_lacking_files_are_copied_from_a_sound_node_and_the_rest_is_said(roots: dict[NodeId, Root]):
    paths = [f"r1/t1-{number}.parquet" for number in range(20)]
    sizes = [copies.write(ROWS, path, roots, (A, B), least=2)[0] for path in paths]
    roots[A].remove(paths[0])
    for node in (A, B):
        roots[node].remove(paths[1])
    copier = Copier(NodeFiles(roots), TransactionId(9))
    made = copier.copy([Lack(RelationId(1), p, n, C, (A, B)) for p, n in zip(paths, sizes, strict=True)])
    assert made == [path != paths[1] for path in paths]
    assert copier.copied.failed == {C: f"{paths[1]}: expected a sound copy to copy from, found none"}
    assert sorted(path for path, _, is_directory in roots[C].listing("r1") if not is_directory) == sorted(
        path for path in paths if path != paths[1]
    )


def test_a_node_whose_disk_is_full_gets_no_more_and_keeps_what_it_has(
    roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch
):
    paths = [f"r1/t1-{number}.parquet" for number in range(3)]
    [size, *_] = [copies.write(ROWS, path, roots, (A,), least=1)[0] for path in paths]
    damaged = Path(roots[C].location) / paths[0]
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")

    def full(source: Root, target: Root, path: str, size: int, beside: str) -> None:
        raise StorageFullError(f"{target.location}: no space left")

    monkeypatch.setattr(copies, "begin_copy", full)
    with pytest.raises(StorageFullError, match=f"node {C}: .* no space left"):
        Copier(NodeFiles(roots), TransactionId(9)).require([Lack(RelationId(1), path, size, C, (A,)) for path in paths])
    assert damaged.read_bytes() == b"damaged"
    assert [file.name for file in Path(roots[C].location).rglob("*.parquet")] == [damaged.name]
