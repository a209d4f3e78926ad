"""Files of other nodes on the disk of this one, bounded in bytes, least recently used out first.

Theory of operation. A file is downloaded under a name of its own (`….part`), checked against the checksum that its node
said, and renamed; so what has its name is whole. A download that was cut is resumed where it stopped, also by the next
process. Runs never change, so nothing goes stale.

A reader learns a path here and opens it later: Spark when its job runs. So a file is kept as long as a read that had
begun before the file was last asked for goes on (`Reads`), and for a moment in any case. A file that finds no room
beside what is kept waits for a while, and is refused then.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ebla.base.caches import Usage
from ebla.base.rights import PRIVATE, make_directory, make_file
from ebla.errors import StorageError
from ebla.storage.files import translated

log = logging.getLogger("ebla.storage")

NAME = "files of other nodes"
PART = ".part"
BLOCK_BYTES = 4 * 2**20
GRACE_S = 5.0
"""How long a file is kept that was asked for, so that it can be opened."""
ROOM_S = 30.0
"""How long a file waits for room."""
LOOK_S = 0.2
ATTEMPTS = 4
"""How often a download is begun or resumed."""


class RemoteFileError(StorageError, OSError):
    """The process of a node does not give a file, or gives other bytes than it says. Another copy may be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file of another node, as it comes."""

    size: int
    """The size of the whole file."""
    checksum: str
    """The SHA-256 of the whole file."""
    offset: int
    """Where the blocks begin."""
    blocks: Iterator[bytes]


Source = Callable[[int], AbstractContextManager[RemoteFile]]
"""Reads a file from a place on."""


@dataclass(slots=True)
class _Entry:
    bytes: int
    used: int
    used_s: float


class Reads:
    """The reads of a process that go on, by when they began. Safe to use from several threads."""

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self._begun: set[int] = set()
        self._lock = threading.Lock()

    def tick(self) -> int:
        """A moment: later ones are greater."""
        return next(self._ticks)

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Keep what is asked for from now on, until the block ends."""
        with self._lock:
            began = self.tick()
            self._begun.add(began)
        try:
            yield
        finally:
            with self._lock:
                self._begun.discard(began)

    def may_need(self, used: int) -> bool:
        """Whether one of them had begun before a file was used last."""
        with self._lock:
            return bool(self._begun) and min(self._begun) < used


class FileCache:
    """Files by name below one directory. Safe to use from several threads of one process."""

    def __init__(
        self,
        directory: Path,
        bytes_max: int,
        reads: Reads,
        mask: int = PRIVATE,
        *,
        grace_s: float = GRACE_S,
        room_s: float = ROOM_S,
    ) -> None:
        self.directory = directory
        self.mask = mask
        self._bytes_max = bytes_max
        self._grace_s = grace_s
        self._room_s = room_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """The least recently used first."""
        self._reserved = 0
        self._reads = reads
        self._busy: set[str] = set()
        """The files that are being downloaded."""
        self._hits = self._misses = 0
        self._changed = threading.Condition()
        self._adopt()

    def _adopt(self) -> None:
        """Take over what a process before this one has left."""
        found = [file for file in self.directory.rglob("*.parquet*") if file.is_file()]
        for file in sorted(found, key=lambda one: one.stat().st_mtime):
            self._entries[str(file.relative_to(self.directory))] = _Entry(file.stat().st_size, self._reads.tick(), 0.0)

    # ---- readers ----------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        return self.directory / name

    def has(self, name: str, size: int) -> bool:
        with self._changed:
            entry = self._entries.get(name)
            return entry is not None and entry.bytes == size

    def fetch(self, name: str, read: Source) -> Path:
        """Have a file here; its path. `RemoteFileError`: its node does not give it."""
        with self._changed:
            while name in self._busy:
                self._changed.wait()
            if self._is_here(name):
                self._hits += 1
                return self.path(name)
            self._misses += 1
            self._busy.add(name)
        try:
            with translated(str(self.path(name))):
                make_directory(self.path(name).parent, self.mask)
            self._download(name, read)
        finally:
            with self._changed:
                self._busy.discard(name)
                self._changed.notify_all()
        return self.path(name)

    def put(self, name: str, content: memoryview | bytes) -> None:
        """Keep a file that was written to its node, if there is room now."""
        size = len(content)
        with self._changed:
            if name in self._busy or not self._takes(size):
                return
            self._busy.add(name)
            self._reserved += size
        part = self.path(name + PART)
        try:
            with contextlib.suppress(OSError):  # it is fetched when it is asked for
                make_directory(part.parent, self.mask)
                make_file(part, self.mask)
                part.write_bytes(content)
                part.replace(self.path(name))
        finally:
            self._settle(name, size)
            with self._changed:
                self._busy.discard(name)
                self._changed.notify_all()

    def drop(self, name: str) -> None:
        """Forget a file, and what there is of it."""
        with self._changed:
            for one in (name, name + PART):
                self._forget(one)

    @property
    def usage(self) -> Usage:
        with self._changed:
            return Usage(
                name=NAME,
                entries=len(self._entries),
                bytes=self._bytes,
                bytes_max=self._bytes_max,
                hits=self._hits,
                misses=self._misses,
            )

    # ---- downloads --------------------------------------------------------------------------------------

    def _download(self, name: str, read: Source) -> None:
        for attempt in range(ATTEMPTS):
            before = self._part_size(name)
            try:
                self._attempt(name, read)
            except RemoteFileError as error:
                now = self._part_size(name)
                is_worth_it = now > before or (before > 0 and now == 0)  # it went on, or begins anew
                if not is_worth_it or attempt == ATTEMPTS - 1:
                    raise
                log.info("file=%s expected it whole, found reason=%s; it is fetched from byte %d", name, error, now)
            else:
                return

    def _attempt(self, name: str, read: Source) -> None:
        part = self.path(name + PART)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_translated(name))
            digest, have = hashlib.sha256(), 0
            for block in _blocks(part):
                digest.update(block)
                have += len(block)
            found = stack.enter_context(read(have))
            if found.offset != have:
                part.unlink(missing_ok=True)
                digest, have = hashlib.sha256(), 0
            self._reserve(name, found.size)
            stack.callback(self._settle, name, found.size)
            if not have:
                make_file(part, self.mask)
            with part.open("ab") as out:
                for block in found.blocks:
                    out.write(block)
                    digest.update(block)
                    have += len(block)
            if have < found.size:
                raise RemoteFileError(f"{name}: expected {found.size} bytes, found the first {have}")
            if have != found.size or digest.hexdigest() != found.checksum:
                part.unlink(missing_ok=True)
                raise RemoteFileError(
                    f"{name}: expected {found.size} bytes with the checksum {found.checksum}, found {have} with "
                    f"{digest.hexdigest()}; they were thrown away"
                )
            part.replace(self.path(name))

    def _part_size(self, name: str) -> int:
        try:
            return self.path(name + PART).stat().st_size
        except OSError:
            return 0

    # ---- room -------------------------------------------------------------------------------------------

    @property
    def _bytes(self) -> int:
        return sum(entry.bytes for entry in self._entries.values()) + self._reserved

    def _reserve(self, name: str, size: int) -> None:
        until = time.monotonic() + self._room_s
        with self._changed:
            self._entries.pop(name + PART, None)  # what is there of it is in its size
            while not self._takes(size):
                if size > self._bytes_max or time.monotonic() >= until:
                    raise StorageError(
                        f"{name}: expected room for {size:,} bytes in the cache of files of other nodes, found "
                        f"{self._bytes:,} of {self._bytes_max:,} in use by reads that go on; raise file_cache_bytes"
                    )
                self._changed.wait(LOOK_S)
            self._reserved += size

    def _takes(self, size: int) -> bool:
        """Whether there is room, after files have gone that no read needs."""
        over = self._bytes + size - self._bytes_max
        for name in list(self._entries) if over > 0 else ():
            if over <= 0:
                break
            if self._is_free(name):
                over -= self._entries[name].bytes
                self._forget(name)
        return over <= 0

    def _is_free(self, name: str) -> bool:
        entry = self._entries[name]
        if name.removesuffix(PART) in self._busy or time.monotonic() < entry.used_s + self._grace_s:
            return False
        return not self._reads.may_need(entry.used)

    def _settle(self, name: str, size: int) -> None:
        """Count what there is of a file instead of what was reserved for it."""
        with self._changed:
            self._reserved -= size
            for one in (name, name + PART):
                with contextlib.suppress(OSError):
                    self._entries[one] = _Entry(self.path(one).stat().st_size, self._reads.tick(), time.monotonic())
            self._changed.notify_all()

    def _is_here(self, name: str) -> bool:
        entry = self._entries.get(name)
        if entry is None:
            return False
        if not self.path(name).exists():
            del self._entries[name]
            return False
        entry.used, entry.used_s = self._reads.tick(), time.monotonic()
        self._entries.move_to_end(name)
        return True

    def _forget(self, name: str) -> None:
        self._entries.pop(name, None)
        with contextlib.suppress(OSError):
            self.path(name).unlink()


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        with translated(name):
            raise error


def _blocks(file: Path) -> Iterator[bytes]:
    if not file.exists():
        return
    with file.open("rb") as read:
        yield from iter(lambda: read.read(BLOCK_BYTES), b"")
