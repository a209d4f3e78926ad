"""Calls to other processes for the files under storage roots that are local to their machines (`ebla.server.files`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx

from ebla.base.ids import NodeId
from ebla.cluster.peer import LEFT_ALONE_S, Peer
from ebla.errors import EblaError, StorageFullError
from ebla.server.files import CHECKSUM
from ebla.storage.file_cache import BLOCK_BYTES, RemoteFile, RemoteFileError

BLOCK = httpx.Timeout(30.0, connect=1.0)
"""Of each block of a file; a large file takes as long as it takes."""
CALL = httpx.Timeout(3.0, connect=1.0)
"""Of a call without a file: others may wait for the caller."""


class FileCalls:
    def __init__(self, client: httpx.Client, living: Callable[[], Mapping[NodeId, Peer]]) -> None:
        self._client = client
        self._living = living

    def reaches(self, node: NodeId) -> bool:
        try:
            peer = self._living().get(node)
        except EblaError:
            return False
        return peer is not None and time.monotonic() >= peer.alone_until_s

    def size(self, node: NodeId, path: str) -> int | None:
        with self._asked("HEAD", node, path) as answer:
            return None if answer.status_code == httpx.codes.NOT_FOUND else int(answer.headers["Content-Length"])

    @contextlib.contextmanager
    def read(self, node: NodeId, path: str, offset: int) -> Iterator[RemoteFile]:
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with contextlib.ExitStack() as stack:
            answer = stack.enter_context(self._asked("GET", node, path, headers=headers))
            if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                answer = stack.enter_context(self._asked("GET", node, path))
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise RemoteFileError(f"{path}: expected it on node {node}, found none")
            yield _file(answer, path)

    def put(self, node: NodeId, path: str, blocks: Iterator[bytes], checksum: str, beside: str | None) -> None:
        given: dict[str, Any] = {"content": blocks, "headers": {CHECKSUM: checksum}}
        given |= {} if beside is None else {"params": {"beside": beside}}
        with self._asked("PUT", node, path, **given) as answer:
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise RemoteFileError(f"{path}: expected node {node} to take it, found: {_said(answer)}")

    def remove(self, node: NodeId, path: str) -> bool:
        with self._asked("DELETE", node, path) as answer:
            answer.read()
            return answer.status_code != httpx.codes.NOT_FOUND and bool(answer.json())

    def listing(self, node: NodeId, under: str) -> list[tuple[str, int, bool]]:
        with self._asked("GET", node, None, params={"under": under}) as answer:
            answer.read()
            return [(str(path), int(size), bool(is_folder)) for path, size, is_folder in answer.json()]

    @contextlib.contextmanager
    def _asked(self, method: str, node: NodeId, path: str | None, **given: Any) -> Iterator[httpx.Response]:
        """The answer to a request, if it is one that can be used. What is cut in the block is an error like others."""
        peer = self._peer(node)
        url = f"{peer.address}/rpc/files/{node}" + ("" if path is None else f"/{path}")
        try:
            timeout = CALL if method in ("HEAD", "DELETE") else BLOCK
            with self._client.stream(method, url, timeout=timeout, **given) as answer:
                if answer.status_code == httpx.codes.INSUFFICIENT_STORAGE:
                    raise StorageFullError(f"node {node}: {_said(answer)}")
                if not answer.is_success and answer.status_code not in (404, 416):
                    raise RemoteFileError(f"node {node}: {path}: {_said(answer)}")
                yield answer
        except (httpx.HTTPError, RuntimeError) as error:  # a client that is closed is a RuntimeError
            if isinstance(error, httpx.ConnectError | httpx.TimeoutException):
                peer.alone_until_s = time.monotonic() + LEFT_ALONE_S
            raise RemoteFileError(f"{peer.address}: {path}: {str(error) or type(error).__name__}") from error

    def _peer(self, node: NodeId) -> Peer:
        try:
            found = self._living().get(node)
        except EblaError as error:
            raise RemoteFileError(f"node {node}: expected to know where it is, found: {error}") from error
        if found is None:
            raise RemoteFileError(f"node {node}: expected its process to live, found none")
        return found


def _file(answer: httpx.Response, path: str) -> RemoteFile:
    try:
        checksum, offset, size = answer.headers[CHECKSUM], 0, int(answer.headers["Content-Length"])
        if answer.status_code == httpx.codes.PARTIAL_CONTENT:
            span, _, whole = answer.headers["Content-Range"].removeprefix("bytes ").partition("/")
            offset, size = int(span.partition("-")[0]), int(whole)
    except (KeyError, ValueError) as error:
        raise RemoteFileError(f"{path}: expected a file with its size and checksum, found another answer") from error
    return RemoteFile(size=size, checksum=checksum, offset=offset, blocks=answer.iter_bytes(BLOCK_BYTES))


def _said(answer: httpx.Response) -> str:
    answer.read()
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
