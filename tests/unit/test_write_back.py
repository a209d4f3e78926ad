"""Bytes are on their way to the disk before a flush, which stays what makes them last."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebla.base.ids import NodeId, RelationId, TransactionId
from ebla.base.pace import PACE
from ebla.errors import StorageError, StorageFullError
from ebla.storage import copies, copying, write_back
from ebla.storage.copying import Copier, Lack
from ebla.storage.files import Root
from ebla.storage.node_files import NodeFiles

A, B = NodeId("a"), NodeId("b")
Call = tuple[int, int, int]


def asked(monkeypatch: pytest.MonkeyPatch, refusal: int = 0) -> list[Call]:
    """What the system is asked for: from where, how much, and how."""
    found: list[Call] = []

    def call(descriptor: int, at: int, size: int, what: int) -> int:
        found.append((at, size, what))
        ctypes.set_errno(refusal)
        return -1 if refusal else 0

    monkeypatch.setattr(write_back, "_sync_file_range", call)
    return found


@pytest.fixture
def roots(tmp_path: Path) -> dict[NodeId, Root]:
    return {node: Root(str(tmp_path / node)) for node in (A, B)}


def put(root: Root, path: str, content: bytes) -> None:
    root.make_place(path)
    Path(root.inner(path)).write_bytes(content)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_system_that_does_not_do_it_leaves_it_to_the_flush(monkeypatch: pytest.MonkeyPatch, number: int):
    asked(monkeypatch, number)
    write_back.begin(3, 0, 10)
    write_back.finish(3, 0, 10)
    monkeypatch.setattr(write_back, "_sync_file_range", None)
    write_back.begin(3, 0, 10)


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, StorageFullError)])
def test_a_disk_that_does_not_take_a_piece_gets_no_copy(
    roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
):
    put(roots[A], "r1/t1-0.parquet", bytes(100))
    asked(monkeypatch, number)
    with pytest.raises(kind):
        copies.copy_checked(roots[A], roots[B], "r1/t1-0.parquet", 100, "r1/t2-copy0.parquet")
    assert not list(Path(roots[B].location).rglob("*.parquet"))


def refused(*given: int) -> int:
    raise OSError(errno.ENOTSOCK, "Socket operation on non-socket")


@pytest.mark.parametrize("by_hand", [None, refused, os.sendfile], ids=["no call", "refused", "in the kernel"])
def test_a_copy_in_pieces_is_that_of_its_source_and_ends_with_a_flush(
    roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch, by_hand: Callable[..., int] | None
):
    monkeypatch.setattr(copies, "_sendfile", by_hand)
    monkeypatch.setattr(copies, "PIECE_BYTES", 1000)
    monkeypatch.setattr(copies, "NEAR_BLOCK_BYTES", 300)
    content = os.urandom(12_345)
    put(roots[A], "r1/t1-0.parquet", content)
    found, steps = asked(monkeypatch), list[str]()
    log(monkeypatch, roots[B], steps)
    copies.copy_checked(roots[A], roots[B], "r1/t1-0.parquet", len(content), "r1/t2-copy0.parquet")
    assert Path(roots[B].inner("r1/t1-0.parquet")).read_bytes() == content
    begun = [(at, size) for at, size, what in found if what == 2]
    assert [at for at, _ in begun] == list(range(0, 12_345, 1000))
    assert sum(size for _, size in begun) == len(content)
    assert len(begun) == len(found), "the flush alone waits"
    assert steps == ["bytes r1/t2-copy0.parquet", "move r1/t1-0.parquet", "names r1"]


def test_beside_a_writer_the_copier_waits_for_each_piece(roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(copies, "PIECE_BYTES", 1000)
    put(roots[A], "r1/t1-0.parquet", os.urandom(2_500))
    found = asked(monkeypatch)
    with PACE.first(), PACE.paced(0.9):
        copies.copy_checked(roots[A], roots[B], "r1/t1-0.parquet", 2_500, "r1/t2-copy0.parquet")
    assert found == [(0, 1000, 7), (1000, 1000, 7), (2000, 500, 7)]


def log(monkeypatch: pytest.MonkeyPatch, root: Root, steps: list[str]) -> None:
    def noting(name: str, said: Callable[..., str]) -> None:
        real = getattr(root, name)

        def note(*given: str) -> object:
            steps.append(said(*given))
            return real(*given)

        monkeypatch.setattr(root, name, note)

    noting("flush_bytes", lambda path: f"bytes {path}")
    noting("move", lambda source, target: f"move {target}")
    noting("flush_name", lambda path: f"names {os.path.dirname(path)}")


def lacking(roots: dict[NodeId, Root], count: int) -> list[Lack]:
    found = []
    for number in range(count):
        path, content = f"r{1 + number % 2}/t1-{number}.parquet", os.urandom(100)
        put(roots[A], path, content)
        found.append(Lack(RelationId(1 + number % 2), path, len(content), B, (A,)))
    return found


def test_many_files_are_written_before_the_first_is_flushed_and_a_folder_is_flushed_once(
    roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch
):
    lacks, steps = lacking(roots, 10), list[str]()
    log(monkeypatch, roots[B], steps)
    real = copies.begin_copy

    def begin(source: Root, target: Root, path: str, size: int, beside: str) -> None:
        real(source, target, path, size, beside)
        steps.append(f"begun {path}")

    monkeypatch.setattr(copies, "begin_copy", begin)
    assert Copier(NodeFiles(roots), TransactionId(9)).copy(lacks) == [True] * 10
    assert [step.split()[0] for step in steps[:10]] == ["begun"] * 10
    assert sum(step.startswith("bytes") for step in steps) == 10
    assert steps[-2:] == ["names r1", "names r2"]


def test_beside_a_writer_small_files_are_flushed_together(roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch):
    lacks, met, real = lacking(roots, 4), threading.Barrier(4), Root.flush_bytes

    def flush(root: Root, path: str) -> None:
        met.wait(60)  # each is flushed while the others are
        real(root, path)

    monkeypatch.setattr(Root, "flush_bytes", flush)
    turns: list[bool] = []
    real_turn = PACE.turn

    @contextlib.contextmanager
    def turn() -> Iterator[bool]:
        with real_turn() as alone:
            turns.append(alone)
            yield alone

    monkeypatch.setattr(PACE, "turn", turn)
    with PACE.first(), PACE.paced(0.9):
        assert Copier(NodeFiles(roots), TransactionId(9)).copy(lacks) == [True] * 4
    assert turns.count(True) == 3, "they are written, flushed and compared in a turn each"


def test_large_files_and_those_of_other_machines_are_copied_by_themselves(
    roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch
):
    copier = Copier(NodeFiles(roots), TransactionId(9))
    near = [Lack(RelationId(1), f"{n}", copying.SMALL_BYTES, B, (A,)) for n in range(copying.BUNDLE_FILES + 1)]
    large = Lack(RelationId(1), "large", copying.SMALL_BYTES + 1, B, (A,))
    found = copier._bundles(list(enumerate([*near, large])))
    assert sorted(map(len, found)) == [1, 1, copying.BUNDLE_FILES]
    monkeypatch.setattr(NodeFiles, "near", frozenset({B}))
    assert [len(one) for one in copier._bundles(list(enumerate(near)))] == [1] * len(near)


def test_a_file_that_cannot_be_flushed_is_no_copy_and_the_others_are(
    roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch
):
    lacks, real = lacking(roots, 4), Root.flush_bytes

    def flush(root: Root, path: str) -> None:
        if path.endswith("copy2.parquet"):
            raise OSError(errno.EIO, "Input/output error")
        real(root, path)

    monkeypatch.setattr(Root, "flush_bytes", flush)
    copier = Copier(NodeFiles(roots), TransactionId(9))
    assert copier.copy(lacks) == [True, True, False, True]
    assert "Input/output error" in copier.copied.failed[B]
    assert len(list(Path(roots[B].location).rglob("*.parquet"))) == 3


def test_names_that_cannot_be_flushed_are_no_copies(roots: dict[NodeId, Root], monkeypatch: pytest.MonkeyPatch):
    def flush(root: Root, path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Root, "flush_name", flush)
    copier = Copier(NodeFiles(roots), TransactionId(9))
    assert copier.copy(lacking(roots, 3)) == [False] * 3
    assert "Input/output error" in copier.copied.failed[B]


def test_a_paced_copier_goes_on_beside_a_writer_that_never_ends(roots: dict[NodeId, Root], monkeypatch):
    monkeypatch.setattr(copies, "PIECE_BYTES", 2**16)
    content = os.urandom(2**20)
    put(roots[A], "r1/t1-0.parquet", content)
    lack = Lack(RelationId(1), "r1/t1-0.parquet", len(content), B, (A,))
    before_s = PACE.paused_s
    with PACE.first(), PACE.paced(0.5):
        assert copying.Copier(NodeFiles(roots), TransactionId(9)).copy([lack]) == [True]
    assert PACE.paused_s > before_s
    assert Path(roots[B].inner("r1/t1-0.parquet")).read_bytes() == content
