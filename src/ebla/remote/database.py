"""A cluster that is reached over HTTP: what an open warehouse offers, as far as it needs no Spark here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import httpx
import pyarrow as pa

from ebla.base.closing import Closing
from ebla.errors import UsageError
from ebla.predicates import conditions as c
from ebla.predicates.conditions import LIMIT_DEFAULT
from ebla.remote.table import RemoteTable
from ebla.remote.transport import ARROW, Tell, Transport
from ebla.spark.result import Facts, Result
from ebla.values import tagged_json

ACCEPT = {"Accept": ARROW}


class RemoteDatabase(Closing):
    """A cluster. Safe to use from several threads; close it, or use it as a context manager."""

    is_remote = True

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def sql(self, text: str, /, **parameters: object) -> Result:
        """Run one or more statements separated by `;` and return the last one's result."""
        if not isinstance(text, str):
            raise UsageError(f"sql: expected a text, found {type(text).__name__}")
        bound = {name: tagged_json.encode(value) for name, value in parameters.items()}
        body = {"sql": text, "parameters": bound}
        return result_of(self._transport.statement("POST", "/v1/sql", json=body, headers=ACCEPT))

    def query(
        self,
        relation: str,
        *,
        where: Mapping[str, object] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int = LIMIT_DEFAULT,
        columns: Sequence[str] | None = None,
        after: object = None,
        at_least: int | None = None,
        wait_s: float = 10.0,
    ) -> Result:
        """The first rows of a table or view that fulfil conditions, in an order, in milliseconds."""
        if where is not None and not isinstance(where, Mapping):
            raise UsageError(f"where: expected a dict of columns and conditions, found {type(where).__name__}")
        body = {
            "relation": relation,
            "where": None if where is None else {name: conditions_json(wanted) for name, wanted in where.items()},
            "order_by": order_by if order_by is None or isinstance(order_by, str) else list(order_by),
            "limit": limit,
            "columns": None if columns is None else list(columns),
            "after": tagged_json.encode(after),
            "at_least": at_least,
            "wait_s": wait_s,
        }
        return self.query_json({name: value for name, value in body.items() if value is not None})

    def query_json(self, body: Mapping[str, Any]) -> Result:
        """The same for a body as the API takes it."""
        return result_of(self._transport.send("POST", "/v1/query", json=body, headers=ACCEPT))

    def table(self, name: str) -> RemoteTable:
        found = self._transport.send("GET", f"/v1/tables/{name}").json()
        return RemoteTable(self._transport, found["name"])

    def tables(self) -> list[str]:
        found: list[str] = self._transport.send("GET", "/v1/tables").json()
        return found

    @property
    def version(self) -> int:
        """The newest committed version, shared by all tables."""
        return int(self._transport.send("GET", "/v1/version").json()["version"])

    def progress(self, name: str) -> dict[str, Any]:
        """How far the build of a view or an index is: a row of `SHOW PROGRESS`."""
        found: dict[str, Any] = self._transport.send("GET", f"/v1/progress/{name}").json()
        return found

    def metrics(self) -> str:
        return self._transport.send("GET", "/metrics").text

    def telling(self, tell: Tell) -> contextlib.AbstractContextManager[None]:
        """Say what statements do while they run."""
        found: contextlib.AbstractContextManager[None] = self._transport.telling(tell)
        return found

    def statement(self) -> contextlib.AbstractContextManager[None]:
        """Ctrl-C cancels a statement on the node that runs it."""
        return contextlib.nullcontext()

    def words(self) -> list[str]:
        """The names of tables, for those who complete what a user types."""
        return self.tables()

    def status(self) -> dict[str, Any]:
        """How the warehouse is, as `ebla status --json` shows it."""
        found: dict[str, Any] = self._transport.send("GET", "/v1/status").json()
        return found

    def close(self) -> None:
        self._transport.close()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UsageError(
            f"{name}: expected a call that needs no Spark, found one of the warehouse itself; "
            "open its directory or its postgresql:// address for it"
        )


def result_of(response: httpx.Response) -> Result:
    with pa.ipc.open_stream(pa.py_buffer(response.content)) as reader:
        table = reader.read_all()
    said = json.loads(response.headers.get("Ebla-Facts", "{}"))
    facts = Facts(applied_version=said.get("applied_version"), age_s=said.get("age_s"), next=said.get("next"))
    return Result(table=table, facts=facts)


def conditions_json(wanted: object) -> Any:
    """A condition, or a list of them, as the API takes it."""
    if isinstance(wanted, list) and wanted and all(isinstance(one, c.Condition) for one in wanted):
        return [_condition_json(one) for one in wanted]
    if isinstance(wanted, list):
        raise UsageError(f"where: expected a value or a list of conditions, found {wanted!r}; use one_of(…)")
    return _condition_json(wanted) if isinstance(wanted, c.Condition) else {"eq": tagged_json.encode(wanted)}


def _condition_json(condition: c.Condition) -> dict[str, Any]:
    match condition:
        case c.Equals(value):
            return {"eq": tagged_json.encode(value)}
        case c.Range(low, high, low_in, high_in):
            if low is not None and high is not None and low_in and high_in:
                return {"between": [tagged_json.encode(low), tagged_json.encode(high)]}
            below = {} if low is None else {"gte" if low_in else "gt": tagged_json.encode(low)}
            return below | ({} if high is None else {"lte" if high_in else "lt": tagged_json.encode(high)})
        case c.Prefix(text):
            return {"prefix": text}
        case c.OneOf(values):
            return {"in": [tagged_json.encode(value) for value in values]}
        case c.IsNull():
            return {"null": True}
        case c.NotNull():
            return {"null": False}
