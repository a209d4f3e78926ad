"""Commands that ask the nodes of a cluster: `ebla -w http://…`. Neither Spark nor Java nor a catalog is opened here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ebla.cli import output
from ebla.cli.query import QueryArguments, comparison, names
from ebla.errors import UsageError

if TYPE_CHECKING:
    from ebla.remote.database import RemoteDatabase

SCHEMES = ("http://", "https://")

_OPERATORS = {"=": "eq", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte", "^=": "prefix"}


def is_remote(place: str) -> bool:
    return place.startswith(SCHEMES)


def opened(place: str) -> RemoteDatabase:
    """The cluster at an address. The token is in the environment, so that no list of processes shows it."""
    from ebla.api.connect import connect

    return cast("RemoteDatabase", connect(place))


def query(place: str, asked: QueryArguments, *, as_json: bool, explain: bool) -> None:
    """`ebla query`: texts are read as values of the columns by the node, which knows their types."""
    if explain:
        raise UsageError("--explain: expected a warehouse that is opened here, found a cluster; EXPLAIN SELECT says it")
    where: dict[str, list[dict[str, Any]]] = {}
    for text in asked.where:
        name, condition = _condition(text)
        where.setdefault(name, []).append(condition)
    with opened(place) as database:
        result = database.query_json(
            {
                "relation": asked.relation,
                "where": where,
                "order_by": [name for text in asked.order_by for name in names(text)],
                "limit": asked.limit,
                **({} if asked.columns is None else {"columns": names(asked.columns)}),
                **({} if asked.after is None else {"after": asked.after}),
                **({} if asked.at_least is None else {"at_least": asked.at_least}),
            }
        )
    sheet = output.Sheet.of(result)
    if as_json:
        facts = {"next": result.next, "applied_version": result.applied_version, "age_s": result.age_s}
        output.write_json({**output.sheet_json(sheet), **facts})
        return
    output.show(sheet, as_json=False)
    if result.age_s:
        output.remark(f"the rows are {result.age_s:.1f} s old, of version {result.applied_version}")
    if result.next is not None:
        output.note(f"more: --after {result.next}")


def _condition(text: str) -> tuple[str, dict[str, Any]]:
    name, operator, value = comparison(text)
    if operator == "null":
        return name, {"null": True}
    if operator == "not null":
        return name, {"null": False}
    if operator == "in":
        return name, {"in": names(value)}
    return name, {_OPERATORS[operator]: value}


def status(place: str, *, as_json: bool) -> int:
    """`ebla status`; returns the exit code."""
    with opened(place) as database:
        found = database.status()
    if as_json:
        output.write_json(found)
    else:
        _show_status(found)
    return 1 if found["needs"] else 0


def _show_status(found: Mapping[str, Any]) -> None:
    print(f"catalog  {found['catalog']}")
    print(f"version  {found['version']}")
    for title, rows in found.items():
        if isinstance(rows, list) and rows:
            columns = list(rows[0])
            print(f"\n{title}")
            output.show(output.Sheet(columns=columns, rows=[[row[c] for c in columns] for row in rows]), as_json=False)


def metrics(place: str, *, as_json: bool) -> None:
    with opened(place) as database:
        text = database.metrics()
    if not as_json:
        print(text, end="")
        return
    from prometheus_client.parser import text_string_to_metric_families as parsed

    samples = [sample for family in parsed(text) for sample in family.samples]
    output.write_json(
        {"metrics": [{"name": one.name, "labels": dict(one.labels), "value": one.value} for one in samples]}
    )
