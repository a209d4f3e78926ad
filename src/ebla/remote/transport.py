"""Requests to one of several nodes: the next one where one does not answer, and each request done once.

A request has an id, which it keeps when it is sent again, to the same node or another. What it commits is kept in the
catalog under that id, so a request whose answer was lost is not done twice.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from ebla.base.backoff import Backoff
from ebla.base.certificates import verification
from ebla.errors import (
    CatalogUnavailableError,
    EblaError,
    NodeUnavailableError,
    NoSparkError,
    RateLimitError,
    UsageError,
)
from ebla.remote.liveness import Liveness, NodeTransport
from ebla.remote.problems import error_of

ARROW = "application/vnd.apache.arrow.stream"
REQUEST = "Ebla-Request"
CONNECT_S = 5.0
PAUSE_S = Backoff(0.1, 2.0)
PROGRESS_S = 0.3

Tell = Callable[[str, float | None], None]

_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
"""A machine that is gone is found out in half a minute, however long a statement may take."""


def addresses(url: str) -> list[str]:
    """`http://a:7601,http://b:7601` as a list; those behind the first may leave `http://` out."""
    found = [one.strip().rstrip("/") for one in url.split(",") if one.strip()]
    scheme = found[0].partition("://")[0]
    made = [one if "://" in one else f"{scheme}://{one}" for one in found]
    for one in made:
        parsed = httpx.URL(one)
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.path not in ("", "/"):
            raise UsageError(f"expected addresses as in http://a:7601,http://b:7601, found {one}")
        if parsed.userinfo:
            raise UsageError("expected an address without a password, found one with it; give token=…")
    return made


def token_of(given: str | None) -> str | None:
    """The token that was given, or that the environment has, itself or in a file."""
    if given is not None or "EBLA_TOKEN" in os.environ:
        return given or os.environ["EBLA_TOKEN"].strip() or None
    file = os.environ.get("EBLA_TOKEN_FILE")
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"EBLA_TOKEN_FILE: expected a file with a token, found: {error}") from error


class Transport:
    """The nodes of a cluster. Safe to use from several threads."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        retry_s: float = 30.0,
        silence_s: float = 30.0,
    ) -> None:
        self.addresses = addresses(url)
        self._retry_s = retry_s
        self._at = 0
        self._tell: Tell | None = None
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        context = httpx.create_ssl_context(verify=verification(ca_file))
        self._liveness = Liveness(self.addresses, context, silence_s)
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            transport=NodeTransport(self._liveness, context, _ALIVE),
            trust_env=False,
        )

    def close(self) -> None:
        self._client.close()
        self._liveness.close()

    # ---- requests ---------------------------------------------------------------------------------------

    def send(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        content: bytes | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        request: str | None = None,
    ) -> httpx.Response:
        """The answer of the first node that gives one. What only another try can answer is tried for a while.

        The limit counts from the first failure: a node may die after a statement has run for an hour.
        """
        request = request or uuid.uuid4().hex
        given = {key: value for key, value in (params or {}).items() if value is not None}
        first: float | None = None
        failures, without_spark = 0, set[str]()
        while True:
            address = self.addresses[self._at % len(self.addresses)]
            error: EblaError
            try:
                response = self._client.request(
                    method,
                    f"{address}{path}",
                    json=json,
                    content=content,
                    params=given,
                    headers={REQUEST: request, **(headers or {})},
                )
                if response.is_success:
                    return response
                error = error_of(response)
                if not _may_pass(error):
                    raise error
            except httpx.TransportError as lost:
                error = NodeUnavailableError(
                    f"{address}: expected an answer, found: {str(lost) or type(lost).__name__}"
                )
            failures += 1
            first = time.monotonic() if first is None else first
            if isinstance(error, NoSparkError):
                without_spark.add(address)
                if len(without_spark) == len(self.addresses):
                    raise error
            self._at += 0 if isinstance(error, RateLimitError) else 1
            if not self._paused(first, failures, error):
                raise error

    def _paused(self, first: float, failures: int, error: EblaError) -> bool:
        """Wait, once all nodes were asked; False when there is no time left since the first failure."""
        waited_s = time.monotonic() - first
        if waited_s >= self._retry_s:
            return False
        if failures % len(self.addresses) == 0 or isinstance(error, RateLimitError):
            said = getattr(error, "retry_after_s", None)
            pause = PAUSE_S.after(failures // len(self.addresses)) * random.uniform(0.5, 1.0) if said is None else said
            time.sleep(min(pause, self._retry_s - waited_s))
        return True

    def statement(self, method: str, path: str, **given: Any) -> httpx.Response:
        """A request that may take long: its progress is shown to those who want it, and Ctrl-C cancels it."""
        request = uuid.uuid4().hex
        over = threading.Event()
        tell = self._tell
        watcher: threading.Thread | None = None
        if tell is not None:
            watcher = threading.Thread(target=self._watch, args=(request, tell, over), daemon=True)
            watcher.start()
        try:
            return self.send(method, path, request=request, **given)
        except KeyboardInterrupt:
            self._cancel(request)
            raise
        finally:
            over.set()
            if watcher is not None:
                watcher.join(CONNECT_S)

    def _cancel(self, request: str) -> None:
        for address in self.addresses:
            with contextlib.suppress(httpx.HTTPError):
                self._client.delete(f"{address}/v1/requests/{request}", timeout=CONNECT_S)

    # ---- progress ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def telling(self, tell: Tell) -> Any:
        """Say what statements do while they run."""
        before, self._tell = self._tell, tell
        try:
            yield
        finally:
            self._tell = before

    def _watch(self, request: str, tell: Tell, over: threading.Event) -> None:
        while not over.wait(PROGRESS_S):
            address = self.addresses[self._at % len(self.addresses)]
            with contextlib.suppress(httpx.HTTPError, ValueError):
                found = self._client.get(f"{address}/v1/requests/{request}", timeout=CONNECT_S)
                if found.is_success and not over.is_set():
                    said = found.json()
                    if said["doing"]:
                        tell(said["doing"], said["part"])


def _may_pass(error: EblaError) -> bool:
    """Whether another try, or another node, may answer."""
    return isinstance(error, NodeUnavailableError | CatalogUnavailableError)


__all__: Sequence[str] = ("ARROW", "Transport", "addresses")
