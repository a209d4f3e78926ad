"""One table of a cluster, from Python: `db.table("orders")`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa

from ebla.errors import TypeMismatchError
from ebla.model.relation import Column
from ebla.remote.transport import ARROW, Transport
from ebla.spark.result import Result
from ebla.values import tagged_json, types


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWrite:
    """What a write did. `version` is `None` when there was nothing to write."""

    version: int | None
    rows: int | None
    staged: int = 0
    """How many of the rows were staged: they are visible when a task has processed them."""


class RemoteTable:
    """A handle; a table that is renamed or dropped meanwhile is an error at the next call."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.name = name

    @property
    def _path(self) -> str:
        return f"/v1/tables/{quote(self.name, safe='')}"

    def upsert(self, rows: Any) -> RemoteWrite:
        """Write rows; one whose key is there already replaces it. Takes an Arrow table, a pandas frame or dicts."""
        return self._write("POST", rows)

    def delete(self, rows: Any) -> RemoteWrite:
        """Delete the rows that have these keys; keys that are not there are no error. Other columns are ignored."""
        return self._write("DELETE", rows)

    def load(
        self, path: str, *, format: str | None = None, options: Mapping[str, object] | None = None, wait: bool = True
    ) -> RemoteWrite:
        """Upsert the rows of files that lie on the node, below one of its `load_from` directories."""
        body = {"path": str(path), "format": format, "options": dict(options or {}), "wait": wait}
        return _written(self._transport.statement("POST", f"{self._path}/load", json=body))

    def changes(self, since: int, until: int | None = None, *, old: bool = False, stream: str | None = None) -> Result:
        """Net changes per key after version `since`, up to and including `until`; with old rows on request."""
        from ebla.remote.database import result_of

        params = {"since": since, "until": until, "old": old, "stream": stream}
        found = self._transport.statement("GET", f"{self._path}/changes", params=params, headers={"Accept": ARROW})
        return result_of(found)

    @property
    def version(self) -> int:
        """The version of the last write."""
        return int(self._info()["version"])

    def _info(self) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.send("GET", self._path).json()
        return found

    def _write(self, method: str, rows: Any) -> RemoteWrite:
        content, kind = self._body(rows, only_key=method == "DELETE")
        headers = {"Content-Type": kind}
        return _written(self._transport.statement(method, f"{self._path}/rows", content=content, headers=headers))

    def _body(self, rows: Any, *, only_key: bool) -> tuple[bytes, str]:
        match rows:
            case pa.Table() | pa.RecordBatch():
                given = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
                return _stream(given), ARROW
            case list() | tuple():
                encoded = [
                    tagged_json.encode(row) if isinstance(row, Mapping) else _no_row(self.name, row) for row in rows
                ]
                return json.dumps({"rows": encoded}).encode(), "application/json; values=tagged"
            case _ if type(rows).__module__.startswith("pandas") and hasattr(rows, "columns"):
                return _stream(self._of_pandas(rows, only_key=only_key)), ARROW
            case _:
                raise TypeMismatchError(
                    f"{self.name}: expected an Arrow table, a pandas frame or a list of dicts, "
                    f"found {type(rows).__name__}"
                )

    def _of_pandas(self, frame: Any, *, only_key: bool) -> pa.Table:
        """The columns of a frame in the types of the table. Only an open warehouse takes a Spark DataFrame."""
        columns: Sequence[Column] = [
            Column(name=one["name"], physical=one["name"], type=one["type"], nullable=one["nullable"])
            for one in self._info()["columns"]
            if one["key"] or not only_key
        ]
        named = {column.name.lower() for column in columns}
        given = frame[[name for name in frame.columns if str(name).lower() in named]] if only_key else frame
        return types.from_pandas(given, columns, relation=self.name)

    def __repr__(self) -> str:
        return f"RemoteTable({self.name!r})"


def _no_row(table: str, row: object) -> Any:
    raise TypeMismatchError(f"{table}: expected a dictionary for each row, found {row!r}")


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _written(response: httpx.Response) -> RemoteWrite:
    found = response.json()
    return RemoteWrite(version=found["version"], rows=found["rows"], staged=found["staged"])
