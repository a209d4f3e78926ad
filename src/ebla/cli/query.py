"""`ebla query`: conditions as people type them, and an answer with its freshness."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebla.catalog.store import Catalog
from ebla.cli import output
from ebla.errors import UsageError

if TYPE_CHECKING:
    from ebla.model.relation import Relation
    from ebla.predicates.conditions import Condition
    from ebla.tables.context import Context

_COMPARED = re.compile(r"\s*(?P<name>[^<>=^]+?)\s*(?P<operator>>=|<=|\^=|=|<|>)(?P<value>.*)\Z", re.DOTALL)
_NULL = re.compile(r"\s*(?P<name>\S+)\s+is\s+(?P<no>not\s+)?null\s*\Z", re.IGNORECASE)
_IN = re.compile(r"\s*(?P<name>\S+)\s+in\s+(?P<values>.+)\Z", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryArguments:
    """What stood on the command line."""

    relation: str
    where: Sequence[str] = ()
    order_by: Sequence[str] = ()
    columns: str | None = None
    limit: int = 100
    after: str | None = None
    at_least: int | None = None


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def comparison(text: str) -> tuple[str, str, str]:
    """A column, an operator (also `null`, `not null` and `in`), and what stands behind it."""
    if found := _NULL.match(text):
        return found["name"], "not null" if found["no"] else "null", ""
    if found := _COMPARED.match(text):
        return found["name"], found["operator"], found["value"].strip()
    if found := _IN.match(text):
        return found["name"], "in", found["values"]
    raise UsageError(
        f"--where {text!r}: expected name=value, <, <=, >, >=, name^=prefix, 'name in a,b', 'name is null' "
        "or 'name is not null'"
    )


def condition(text: str, relation: Relation) -> tuple[str, Condition]:
    """A column and its condition, with a value of the column's type."""
    from ebla.predicates import conditions as c
    from ebla.predicates.values import from_text

    def value(name: str, typed: str) -> Any:
        return from_text(typed, c.column_of(relation, name, "--where"), relation.name)

    name, operator, typed = comparison(text)
    match operator:
        case "null" | "not null":
            return name, c.IsNull() if operator == "null" else c.NotNull()
        case "in":
            return name, c.OneOf(tuple(value(name, one) for one in names(typed)))
        case "=":
            return name, c.Equals(value(name, typed))
        case "^=":
            return name, c.Prefix(typed)
        case "<" | "<=":
            return name, c.Range(None, value(name, typed), high_in=operator == "<=")
        case _:
            return name, c.Range(value(name, typed), None, low_in=operator == ">=")


def run(place: str, asked: QueryArguments, *, as_json: bool, explain: bool) -> None:
    """Answer from the catalog and the files alone: no node is registered, and nothing is changed."""
    from ebla.base import settings
    from ebla.catalog.store import Catalog
    from ebla.tables.context import Context

    loaded = settings.load()
    context = Context.open(Catalog.open(place, create=False, table_names=loaded.table_names), loaded)
    with contextlib.closing(context):
        _answer(context, asked, as_json=as_json, explain=explain)


def _answer(context: Context, asked: QueryArguments, *, as_json: bool, explain: bool) -> None:
    from ebla.predicates import conditions as c
    from ebla.query.execute import Reader

    def make(relation: Relation) -> c.Request:
        where: dict[str, list[Condition]] = {}
        for text in asked.where:
            name, wanted = condition(text, relation)
            where.setdefault(c.column_of(relation, name, "--where").name, []).append(wanted)
        order = [name for text in asked.order_by for name in names(text)]
        columns = None if asked.columns is None else names(asked.columns)
        return c.request(relation, where=where, order_by=order, columns=columns, limit=asked.limit, after=asked.after)

    reader = Reader(context)
    if explain:
        from ebla.query import explain as plan_output

        plan = reader.explain(asked.relation, make)
        if as_json:
            output.write_json(plan_output.as_json(plan))
        else:
            print(plan_output.as_text(plan))
        return
    result = reader.query(asked.relation, make, at_least=asked.at_least).result(context)
    sheet = output.Sheet.of(result)
    waits_for, error = _why_old(context.catalog, asked.relation) if result.age_s else (None, None)
    if as_json:
        facts: dict[str, Any] = {"next": result.next, "applied_version": result.applied_version, "age_s": result.age_s}
        facts |= {"waits_for": waits_for, "error": error}
        output.write_json({**output.sheet_json(sheet), **facts})
        return
    output.show(sheet, as_json=False)
    if result.age_s:
        said = [f"the rows are {result.age_s:.1f} s old, of version {result.applied_version}"]
        said += [] if waits_for is None else [f"waits for {waits_for}"]
        said += [] if error is None else [f"last error: {error}"]
        output.remark("; ".join(said))
    elif result.applied_version is not None:
        output.note(f"shows everything; applied version {result.applied_version}")
    if result.next is not None:
        output.note(f"more: --after {result.next}")


def _why_old(catalog: Catalog, name: str) -> tuple[str | None, str | None]:
    """What a view waits for, and its last error."""
    from ebla.relations import status

    found = {view.name.lower(): view for view in status.of(catalog).views}
    view = found.get(name.lower())
    return (None, None) if view is None else (view.waits_for, view.error)
