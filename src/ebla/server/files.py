"""Files of runs under storage roots that are local to this machine, as other nodes ask for them: `/rpc/files/…`.

`GET` and `HEAD` give a run, or a range of it, with the checksum of the whole file; `PUT` writes one beside its place,
reads it again and renames it; `DELETE` removes what a transaction has written. A path is that of a run which the
manifest names, or of an open transaction: no other file below the root can be asked for, and none outside.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cachetools import LRUCache
from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from ebla.base.ids import NodeId, RelationId
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import StorageError, UnknownNameError, UsageError
from ebla.storage.file_cache import BLOCK_BYTES, PART
from ebla.storage.files import Root, owner, translated

if TYPE_CHECKING:
    from ebla.api.database import Database

CHECKSUM = "Ebla-Checksum"
"""The header with the SHA-256 of a whole file, in hexadecimal."""
SEND_BYTES = 2**20
CHECKSUMS_MAX = 10_000

_RUN = re.compile(r"r(\d+)/t\d+-(copy)?\d+\.parquet")
_WRITTEN = re.compile(r"r\d+/t\d+-[A-Za-z0-9._-]+(/[A-Za-z0-9._=-]+)*")
"""What a transaction may have written: runs, copies, and scratch."""
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def add_to(router: APIRouter, database: Database) -> None:
    """Serve files on a router that asks for the secret of the cluster."""
    served = _ServedFiles(database)

    @router.get("/files/{node}")
    def listing(node: str, under: str = "") -> list[tuple[str, int, bool]]:
        if under and not _is_inside(under):
            raise UsageError(f"under: expected a path of runs, found {under!r}")
        return served.root(node).listing(under)

    @router.api_route("/files/{node}/{path:path}", methods=["GET", "HEAD"])
    def get(
        request: Request, node: str, path: str, span: Annotated[str | None, Header(alias="Range")] = None
    ) -> Response:
        return served.answer(node, path, span, with_bytes=request.method == "GET")

    @router.put("/files/{node}/{path:path}", status_code=204)
    async def put(
        request: Request,
        node: str,
        path: str,
        checksum: Annotated[str, Header(alias=CHECKSUM)],
        beside: str | None = None,
    ) -> None:
        upload = await run_in_threadpool(served.upload, node, path, beside)
        try:
            kept = bytearray()
            async for block in request.stream():
                kept += block
                if len(kept) >= BLOCK_BYTES:
                    await run_in_threadpool(upload.add, bytes(kept))
                    kept.clear()
            await run_in_threadpool(upload.end, bytes(kept), checksum)
        except BaseException:
            await run_in_threadpool(upload.give_up)
            raise

    @router.delete("/files/{node}/{path:path}")
    def remove(node: str, path: str) -> bool:
        root = served.root(node)
        if not _is_inside(path) or _WRITTEN.fullmatch(path) is None:
            raise UnknownNameError(f"{path}: expected a path that a transaction writes to, found another")
        if os.path.isdir(root.inner(path)):
            root.remove_tree(path)
            return True
        return root.remove(path)


def _is_inside(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


def _blocks(file: Path, first: int, end: int) -> Iterator[bytes]:
    with file.open("rb") as read:
        read.seek(first)
        while first < end:
            block = read.read(min(SEND_BYTES, end - first))
            if not block:
                return  # it was cut meanwhile; the receiver counts
            first += len(block)
            yield block


class _ServedFiles:
    """The files of the nodes of one process."""

    def __init__(self, database: Database) -> None:
        self._context = database.context
        self._checksums: LRUCache[tuple[str, int, int], str] = LRUCache(CHECKSUMS_MAX)
        self._lock = threading.Lock()

    def root(self, node: str) -> Root:
        found = self._context.nodes.own(NodeId(node))
        if found is None or not found.local:
            raise UnknownNameError(f"node {node}: expected one of this process with files on its disk, found none")
        return found

    def file(self, node: str, path: str) -> Path:
        root = self.root(node)
        self._require_run(path)
        if root.size(path) is None:
            raise UnknownNameError(f"{path}: expected a file of node {node}, found none")
        return Path(root.inner(path))

    def answer(self, node: str, path: str, span: str | None, *, with_bytes: bool) -> Response:
        """A file, or the range of it that is asked for."""
        file = self.file(node, path)
        size = file.stat().st_size
        headers = {CHECKSUM: self.checksum(file), "Accept-Ranges": "bytes"}
        first, end, status = 0, size, 200
        if span is not None:
            asked = _RANGE.fullmatch(span)
            first = size if asked is None else int(asked[1])
            end = size if asked is None or not asked[2] else min(size, int(asked[2]) + 1)
            if first >= end:
                return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
            headers["Content-Range"], status = f"bytes {first}-{end - 1}/{size}", 206
        headers["Content-Length"] = str(end - first)
        if not with_bytes:
            return Response(status_code=status, headers=headers)
        blocks = _blocks(file, first, end)
        return StreamingResponse(blocks, status, headers, media_type="application/octet-stream")

    def _require_run(self, path: str) -> None:
        """Refuse what is no run of the manifest and of no open transaction."""
        named = _RUN.fullmatch(path)
        if named is not None:
            relation = RelationId(int(named[1]))
            with self._context.catalog.reading() as connection:
                if reads.is_named(connection, relation, path) or owner(path) in tx.open_transactions(connection):
                    return
        raise UnknownNameError(f"{path}: expected a run of the manifest, or of an open transaction, found another path")

    def checksum(self, file: Path) -> str:
        """Read once, as long as the file is not written again."""
        state = file.stat()
        name = str(file), state.st_size, state.st_mtime_ns
        with self._lock:
            found = self._checksums.get(name)
        if found is None:
            found = _sha256(file)
            with self._lock:
                self._checksums[name] = found
        return found

    def upload(self, node: str, path: str, beside: str | None) -> _Upload:
        self._require_run(path)
        if beside is not None:
            self._require_run(beside)
        return _Upload(self.root(node), path, beside or path + PART)


class _Upload:
    """A file that is being written."""

    def __init__(self, root: Root, path: str, beside: str) -> None:
        self._root = root
        self._path = path
        self._beside = beside
        root.make_place(beside)
        with translated(root.full(beside)):
            self._out = open(root.inner(beside), "wb")  # noqa: SIM115  it is closed when the file ends

    def add(self, block: bytes) -> None:
        with translated(self._root.full(self._path)):
            self._out.write(block)

    def end(self, block: bytes, checksum: str) -> None:
        """Give the file its name, if it has the bytes that were sent."""
        self.add(block)
        root = self._root
        with translated(root.full(self._path)):
            self._out.close()
            root.flush_bytes(self._beside)
            found = _sha256(Path(root.inner(self._beside)))
            if found != checksum:
                raise StorageError(
                    f"{root.full(self._path)}: expected bytes with the checksum {checksum}, found {found}; they were "
                    "thrown away: send them again"
                )
            root.move(self._beside, self._path)
            root.flush_name(self._path)

    def give_up(self) -> None:
        with contextlib.suppress(OSError, StorageError):
            self._out.close()
            self._root.remove(self._beside)


def _sha256(file: Path) -> str:
    with file.open("rb") as read:
        return hashlib.file_digest(read, "sha256").hexdigest()
