"""The cache of files of other nodes: its bound, what it keeps, and downloads that are cut or wrong."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebla.errors import StorageError
from ebla.storage.file_cache import PART, FileCache, Reads, RemoteFile, RemoteFileError

CONTENT = bytes(range(256)) * 40


class Sender:
    """A node that sends one file, and notes from where on it was asked for it."""

    def __init__(
        self, content: bytes = CONTENT, *, cut_at: list[int] | None = None, checksum: str | None = None
    ) -> None:
        self.content = content
        self.cut_at = cut_at or []
        self.checksum = checksum or hashlib.sha256(content).hexdigest()
        self.offsets: list[int] = []

    @contextlib.contextmanager
    def __call__(self, offset: int) -> Iterator[RemoteFile]:
        self.offsets.append(offset)
        end = self.cut_at.pop(0) if self.cut_at else None

        def blocks() -> Iterator[bytes]:
            yield self.content[offset:end]
            if end is not None:
                raise RemoteFileError("the connection is gone")

        yield RemoteFile(size=len(self.content), checksum=self.checksum, offset=offset, blocks=blocks())


def cache(folder: Path, files: int, reads: Reads | None = None) -> FileCache:
    """A cache with room for some files."""
    return FileCache(folder, files * len(CONTENT), reads or Reads(), grace_s=0.0, room_s=0.2)


def test_a_file_is_fetched_once(tmp_path: Path):
    kept, sender = cache(tmp_path, 2), Sender()
    assert kept.fetch("n/r1/t1-0.parquet", sender).read_bytes() == CONTENT
    assert kept.fetch("n/r1/t1-0.parquet", sender).read_bytes() == CONTENT
    assert sender.offsets == [0]
    usage = kept.usage
    assert (usage.entries, usage.bytes, usage.hits, usage.misses) == (1, len(CONTENT), 1, 1)


def test_a_download_that_is_cut_is_resumed_where_it_stopped(tmp_path: Path):
    kept, sender = cache(tmp_path, 1), Sender(cut_at=[1000, 5000])
    assert kept.fetch("n/r1/t1-0.parquet", sender).read_bytes() == CONTENT
    assert sender.offsets == [0, 1000, 5000]


def test_the_next_process_resumes_it_and_knows_what_is_whole(tmp_path: Path):
    first, lost = cache(tmp_path, 2), Sender(cut_at=[1000, 1000])
    with pytest.raises(RemoteFileError, match="gone"):
        first.fetch("n/r1/t1-0.parquet", lost)
    first.fetch("n/r1/t2-0.parquet", Sender())
    assert (tmp_path / "n/r1/t1-0.parquet.part").stat().st_size == 1000
    second, sender, unasked = cache(tmp_path, 2), Sender(), Sender()
    assert second.usage.bytes == 1000 + len(CONTENT)
    assert second.fetch("n/r1/t1-0.parquet", sender).read_bytes() == CONTENT
    assert sender.offsets == [1000]
    second.fetch("n/r1/t2-0.parquet", unasked)
    assert unasked.offsets == []


def test_other_bytes_than_the_checksum_says_are_thrown_away(tmp_path: Path):
    kept = cache(tmp_path, 1)
    with pytest.raises(RemoteFileError, match="checksum"):
        kept.fetch("n/r1/t1-0.parquet", Sender(checksum="0" * 64))
    assert list(tmp_path.rglob("*.parquet*")) == []
    assert kept.usage.bytes == 0
    assert kept.fetch("n/r1/t1-0.parquet", Sender()).read_bytes() == CONTENT


def test_a_beginning_that_does_not_fit_the_rest_is_fetched_anew(tmp_path: Path):
    kept, sender = cache(tmp_path, 1), Sender()
    part = kept.path("n/r1/t1-0.parquet" + PART)
    part.parent.mkdir(parents=True)
    part.write_bytes(b"other bytes")
    assert kept.fetch("n/r1/t1-0.parquet", sender).read_bytes() == CONTENT
    assert sender.offsets == [11, 0]


def test_the_least_recently_used_goes_first_and_the_bound_holds(tmp_path: Path):
    kept = cache(tmp_path, 2)
    for name in ("a.parquet", "b.parquet", "a.parquet", "c.parquet"):
        kept.fetch(name, Sender())
        assert kept.usage.bytes <= 2 * len(CONTENT)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.parquet", "c.parquet"]


def test_what_a_read_asked_for_stays_until_it_ends(tmp_path: Path):
    reads = Reads()
    kept = cache(tmp_path, 2, reads)
    kept.fetch("before.parquet", Sender())
    with reads.one():
        kept.fetch("mine.parquet", Sender())
        kept.fetch("other.parquet", Sender())  # in the place of the one that was asked for before
        with pytest.raises(StorageError, match=r"expected room for 10,240 bytes .* raise file_cache_bytes"):
            kept.fetch("more.parquet", Sender())
        assert kept.path("mine.parquet").exists()
    assert kept.fetch("more.parquet", Sender()).exists()
    assert not kept.path("mine.parquet").exists()


def test_a_file_that_was_just_asked_for_stays_to_be_opened(tmp_path: Path):
    kept = FileCache(tmp_path, len(CONTENT), Reads(), room_s=0.2)
    kept.fetch("a.parquet", Sender())
    with pytest.raises(StorageError, match="expected room"):
        kept.fetch("b.parquet", Sender())
    assert kept.path("a.parquet").exists()


def test_a_file_that_is_larger_than_the_cache_is_refused_at_once(tmp_path: Path):
    kept = FileCache(tmp_path, len(CONTENT) - 1, Reads(), room_s=3600.0)
    with pytest.raises(StorageError, match="raise file_cache_bytes"):
        kept.fetch("a.parquet", Sender())
    assert kept.usage.bytes == 0


def test_what_was_written_is_kept_only_where_there_is_room(tmp_path: Path):
    reads = Reads()
    kept, unasked = cache(tmp_path, 1, reads), Sender()
    kept.put("a.parquet", CONTENT)
    kept.fetch("a.parquet", unasked)
    assert unasked.offsets == []
    with reads.one():
        kept.fetch("a.parquet", unasked)
        kept.put("b.parquet", CONTENT)
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_a_file_that_was_removed_from_the_disk_is_fetched_again(tmp_path: Path):
    kept, again = cache(tmp_path, 2), Sender()
    kept.fetch("a.parquet", Sender()).unlink()
    assert kept.fetch("a.parquet", again).read_bytes() == CONTENT
    kept.drop("a.parquet")
    assert kept.usage.entries == 0
