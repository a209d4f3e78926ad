"""Files under storage roots: a local directory, or any prefix that Arrow's file systems reach.

A run's path is the same under every root that holds it: `r<relation>/t<transaction>-<number>.parquet`. The
transaction in the name is what lets a sweep tell a file of an open transaction from one of none.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ebla.base.ids import NodeId, RelationId, TransactionId
from ebla.base.rights import PRIVATE, make_directory, make_file, restrict
from ebla.errors import StorageError, StorageFullError
from ebla.model.topology import is_local

_OWNER = re.compile(r"^r\d+/t(\d+)-")
MARKER = "ebla-root.json"
"""The file in a storage root that says whose it is."""
ROW_GROUP_ROWS = 65_536
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Owner(NamedTuple):
    """Whose a storage root is."""

    cluster: str
    """The id of the catalog."""
    node: NodeId
    """The host id of the node."""


def run_path(relation: RelationId, transaction: TransactionId, number: int) -> str:
    return f"r{relation}/t{transaction}-{number}.parquet"


def scratch_path(relation: RelationId, transaction: TransactionId, number: int = 0) -> str:
    """A directory for one Spark job's output, swept like a run if its transaction dies."""
    return f"r{relation}/t{transaction}-scratch{number}"


def copy_path(relation: RelationId, transaction: TransactionId, number: int) -> str:
    """A file that becomes a copy of a run, swept if its transaction dies."""
    return f"r{relation}/t{transaction}-copy{number}.parquet"


def owner(path: str) -> TransactionId | None:
    found = _OWNER.search(path)
    return TransactionId(int(found.group(1))) if found else None


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Say in our words what the disk said."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE or "No space left" in str(error):
            raise StorageFullError(
                f"{what}: expected room for the write, found the disk full; it was rolled back: free space and retry"
            ) from error
        raise StorageError(f"{what}: {error}") from error


def honest_statistics(table: pa.Table) -> bool | list[str]:
    """The columns of a file whose least and greatest values may be written beside them.

    Arrow leaves NaN out of them. To Spark it is the greatest number, so it would skip a row group that has one.
    """
    left_out = {field.name for field in table.schema if _may_be_nan(table, field)}
    return [name for name in table.schema.names if name not in left_out] if left_out else True


def _may_be_nan(table: pa.Table, field: pa.Field) -> bool:
    if pa.types.is_nested(field.type):
        return True  # too deep to look at, and rarely asked for
    return pa.types.is_floating(field.type) and bool(pc.any(pc.is_nan(table[field.name])).as_py())


def encoded(table: pa.Table, row_group_rows: int = ROW_GROUP_ROWS) -> pa.Buffer:
    """The bytes of the file that `Root.write_parquet` writes."""
    with pa.BufferOutputStream() as out:
        _encode(table, out, row_group_rows)
        return out.getvalue()


def _encode(table: pa.Table, out: pa.NativeFile, row_group_rows: int) -> None:
    pq.write_table(
        table,
        out,
        compression="snappy",
        row_group_size=row_group_rows,
        write_page_checksum=True,
        write_statistics=honest_statistics(table),
    )


class Root:
    """One node's storage root."""

    is_remote = False
    """Whether files come and go through the process of its node."""

    def __init__(self, location: str, *, fsync: bool = True, mask: int = PRIVATE, owner: Owner | None = None) -> None:
        """`mask`: the rights that what is made here does not give; it counts for a local directory.

        `owner`: whose root it is. Where the marker does not say so, the node's disk is gone, or another one is in its
        place: nothing is written or removed then.
        """
        if is_local(location):
            raise StorageError(
                f"{location}: expected a storage root that is reached by path, found one that is local to the machine "
                "of its node; ask a node over HTTP instead"
            )
        if "://" not in location:
            location = str(Path(location).absolute())
        self.location = location
        self.filesystem, self.base = fs.FileSystem.from_uri(location)
        self.local = isinstance(self.filesystem, fs.LocalFileSystem)
        self.fsync = fsync and self.local
        self.mask = mask
        self._owner = owner
        self._marked: tuple[int, ...] | None = None
        """The marker, by what `stat` says of it, that named the owner when it was last read."""
        self._distrusted: dict[str, int | None] = {}

    def full(self, path: str) -> str:
        """The address that Spark and users see."""
        return f"{self.location.rstrip('/')}/{path}"

    def inner(self, path: str) -> str:
        return f"{self.base.rstrip('/')}/{path}"

    @property
    def is_writable(self) -> bool:
        """Whether files may be written and removed here: the marker names the owner."""
        if self._owner is None:
            return True
        now = self._stat_of_marker() if self.local else ()
        if now is not None and (not now or now != self._marked):
            self._marked = now if self._names_owner() else None
        return now is not None and now == self._marked

    def _stat_of_marker(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.inner(MARKER))
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _names_owner(self) -> bool:
        try:
            found = self.owner() or {}
        except StorageError:
            return False
        return self._owner == (found.get("cluster"), found.get("node"))

    def make_parent(self, path: str) -> None:
        if not self.is_writable:
            raise StorageError(
                f"{self.full(path)}: expected the storage root of a node, found no file {MARKER} in it that says so; "
                "bring its disk back, or remove the node"
            )
        parent = os.path.dirname(self.inner(path))
        with translated(self.full(path)):
            if self.local:
                make_directory(Path(parent), self.mask)
            else:
                self.filesystem.create_dir(parent, recursive=True)

    def make_place(self, path: str) -> None:
        """The parent, and an empty file with the rights that it shall have before anything is in it."""
        self.make_parent(path)
        if self.local:
            with translated(self.full(path)):
                make_file(Path(self.inner(path)), self.mask)

    def size(self, path: str) -> int | None:
        """Bytes of a file; `None` when it is not there, or its disk does not answer."""
        if self.local:
            try:
                return os.stat(self.inner(path)).st_size
            except OSError:
                return None
        info = self.filesystem.get_file_info(self.inner(path))
        return info.size if info.type == fs.FileType.File else None

    def sound(self, path: str, size: int) -> bool:
        """Whether a file is there with this size, and no check found it damaged."""
        if self.size(path) != size:
            return False
        return path not in self._distrusted or self._distrusted[path] != self._modified(path)

    def distrust(self, path: str) -> None:
        """Take no more rows from a file that was found damaged, until it is written again."""
        self._distrusted[path] = self._modified(path)

    def _modified(self, path: str) -> int | None:
        stamp: int | None = self.filesystem.get_file_info(self.inner(path)).mtime_ns
        return stamp

    def write_parquet(self, table: pa.Table, path: str, row_group_rows: int = ROW_GROUP_ROWS) -> int:
        self.make_place(path)
        with translated(self.full(path)):
            with self.filesystem.open_output_stream(self.inner(path)) as out:
                _encode(table, out, row_group_rows)
            self.flush(path)
            return self.size(path) or 0

    def write_bytes(self, content: pa.Buffer, path: str) -> None:
        self.make_place(path)
        with translated(self.full(path)):
            with self.filesystem.open_output_stream(self.inner(path)) as out:
                out.write(content)
            self.flush(path)

    def owner(self) -> dict[str, str] | None:
        """The catalog and the node that this root belongs to; `None` for a root that no node has claimed."""
        if self.size(MARKER) is None:
            return None
        with translated(self.full(MARKER)), self.filesystem.open_input_stream(self.inner(MARKER)) as file:
            said = file.read()
        try:
            found = json.loads(said)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not {"cluster", "node"} <= found.keys():
            raise StorageError(
                f"{self.full(MARKER)}: expected the ids of a catalog and a node, found {said[:80]!r}; bring the file "
                "back from a backup, or use another storage root"
            )
        return found

    def claim(self, claimed: Mapping[str, str]) -> dict[str, str]:
        """Mark the root as a node's own, unless it is another's already; whose it is then.

        The marker is there whole or not at all, and of two processes that claim a root at once one does.
        """
        self.make_parent(MARKER)
        if (before := self.owner()) is not None:
            return before
        written = f".{MARKER}-{uuid.uuid4().hex}"
        self.make_place(written)
        with translated(self.full(MARKER)):
            with self.filesystem.open_output_stream(self.inner(written)) as out:
                out.write(json.dumps(dict(claimed)).encode())
            self.flush(written)
            self._publish(written, MARKER)
            self.flush(MARKER)
        return self.owner() or dict(claimed)

    def _publish(self, written: str, name: str) -> None:
        """Give a file its name, unless another file has it."""
        try:
            if not self.local:
                raise OSError(errno.ENOTSUP, "no links")
            os.link(self.inner(written), self.inner(name))
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if self.size(name) is None:
                self.filesystem.move(self.inner(written), self.inner(name))
                return
        self.filesystem.delete_file(self.inner(written))

    def flush(self, path: str) -> None:
        """A file is there after a loss of power: its bytes, and its name, which must last as long."""
        self.flush_bytes(path)
        self.flush_name(path)

    def flush_bytes(self, path: str) -> None:
        if self.fsync:
            with open(self.inner(path), "rb") as file:
                os.fsync(file.fileno())

    def flush_name(self, path: str) -> None:
        if not self.fsync:
            return
        folder = os.open(os.path.dirname(self.inner(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def open_parquet(self, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(self.inner(path), filesystem=self.filesystem, page_checksum_verification=True)

    def move(self, source: str, target: str) -> None:
        with translated(self.full(target)):
            self.filesystem.move(self.inner(source), self.inner(target))
            if self.local:
                restrict(Path(self.inner(target)), self.mask)

    def fetch(self, path: str) -> None:
        """Have a file where `inner` and `full` say that it is."""

    def fetch_again(self, path: str) -> None:
        """The same as its node has it now."""

    def receive(self, source: Root, path: str) -> None:
        """Copy a file of another root here."""
        source.fetch(path)
        self.make_place(path)
        with translated(self.full(path)):
            fs.copy_files(
                source.inner(path),
                self.inner(path),
                source_filesystem=source.filesystem,
                destination_filesystem=self.filesystem,
                use_threads=False,
            )
            self.flush(path)

    def remove(self, path: str) -> bool:
        """Delete a file; one that is gone already is fine."""
        if not self.is_writable:
            return False
        try:
            self.filesystem.delete_file(self.inner(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StorageError(f"{self.full(path)}: {error}") from error
        return True

    def remove_tree(self, path: str) -> None:
        if not self.is_writable:
            return
        with contextlib.suppress(FileNotFoundError, OSError):
            self.filesystem.delete_dir(self.inner(path))

    def listing(self, under: str = "") -> list[tuple[str, int, bool]]:
        """Everything under the root: path, bytes, whether it is a directory. Hidden checksum files included."""
        base = self.inner(under).rstrip("/")
        try:
            infos = self.filesystem.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        except NotADirectoryError:
            return []
        prefix = len(self.base.rstrip("/")) + 1
        return [(i.path[prefix:], i.size or 0, i.type == fs.FileType.Directory) for i in infos]
