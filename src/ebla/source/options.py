"""The options of `format("ebla")`, and the catalog they lead to."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from ebla.base import settings as settings_module
from ebla.base.closing import Closing
from ebla.base.ids import NodeId
from ebla.base.settings import Settings
from ebla.catalog import reads, topology
from ebla.catalog.store import Catalog, is_postgres
from ebla.errors import UnknownNameError, UsageError

READ_OPTIONS = (
    "url", "table", "version", "since", "until", "old", "stream",
    "startingVersion", "maxVersionsPerBatch", "readChangeFeed",
)  # fmt: skip
WRITE_OPTIONS = ("url", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the options ask for."""

    url: str
    table: str
    settings: Settings
    version: int | None = None
    since: int | None = None
    until: int | None = None
    old: bool = False
    stream: str | None = None
    """The change stream that is read; `None`: all of them."""
    feed: bool = False
    """The change columns of a stream are wanted."""
    starting: int | None = None
    versions_max: int | None = None
    patient: bool = True
    """The lease of a write is as long as a Spark job may take, unless an option sets a shorter one."""


def parse(options: Mapping[str, str], *, writing: bool = False) -> Request:
    """Options as a request. Names are those of settings and of this source, whatever their case."""
    given = {name.lower(): value for name, value in options.items()}
    names = WRITE_OPTIONS if writing else READ_OPTIONS
    own = {name: given.pop(name.lower()) for name in names if name.lower() in given}
    for name in given:
        if name not in Settings.model_fields:
            allowed = ", ".join([*names, *sorted(Settings.model_fields)])
            raise UnknownNameError(f"option {name}: expected one of {allowed}")
    for name, example in (("url", "./warehouse"), ("table", "orders")):
        if not own.get(name):
            raise UsageError(f'option {name}: expected a value, found none; add .option("{name}", "{example}")')
    settings = settings_module.load(**{name: _setting(name, value) for name, value in given.items()})
    url = own["url"]
    request = Request(
        url=url if is_postgres(url) else str(Path(url).absolute()),
        table=own["table"],
        settings=settings,
        version=_number(own, "version"),
        since=_number(own, "since"),
        until=_number(own, "until"),
        old=_truth(own, "old"),
        stream=own.get("stream"),
        feed=_truth(own, "readChangeFeed") or "startingVersion" in own or "maxVersionsPerBatch" in own,
        starting=_number(own, "startingVersion"),
        versions_max=_number(own, "maxVersionsPerBatch", least=1),
        patient="transaction_lease_s" not in settings.model_fields_set,
    )
    _refuse_mixtures(request)
    return request


def _refuse_mixtures(request: Request) -> None:
    if request.since is None and request.until is not None:
        raise UsageError("option until: expected since with it, found none")
    if request.since is None and request.old and not request.feed:
        raise UsageError("option old: expected a read of changes, found none; add since, or readChangeFeed")
    if request.since is None and request.stream is not None and not request.feed:
        raise UsageError("option stream: expected a read of changes, found none; add since, or readChangeFeed")
    modes = {
        "version": request.version is not None,
        "since": request.since is not None,
        "readChangeFeed, startingVersion or maxVersionsPerBatch": request.feed,
    }
    chosen = [name for name, used in modes.items() if used]
    if len(chosen) > 1:
        raise UsageError(f"options: expected only one of {' and '.join(chosen)}; found both")


def _setting(name: str, value: str) -> object:
    if name != "nodes":
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise UsageError(f"option nodes: expected a JSON object of node to storage root, found {value!r}") from None


def _number(options: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < least:
        raise UsageError(f"option {name}: expected a whole number from {least} on, found {text!r}")
    return number


def _truth(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise UsageError(f"option {name}: expected true or false, found {text!r}")
    return text == "true"


class Origin(Closing):
    """The catalog that a request names, open on the driver's machine. Never pickled."""

    def __init__(self, request: Request) -> None:
        self.settings = settings = request.settings
        names = settings.table_names
        self.catalog = Catalog.open(request.url, create=False, retry_s=settings.catalog_retry_s, table_names=names)
        self.node = self.catalog.read(lambda connection: topology.host_id(connection, request.settings.node))
        self.holder = f"{socket.gethostname()}/{os.getpid()}/spark"

    def roots(self, connection: Connection) -> dict[NodeId, str]:
        """Every node's storage root as an address that a task on another machine can use."""
        return {
            node: str(Path(self.catalog.where) / root[2:]) if root.startswith("./") else root
            for node, root in reads.roots(connection).items()
        }

    @property
    def pin_lease_us(self) -> int:
        return int(self.settings.pin_lease_s * 1e6)

    def close(self) -> None:
        self.catalog.close()
