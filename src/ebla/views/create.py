"""A view is created: its query is checked, its columns and key are found, its relation is made, its rows are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId
from ebla.catalog import reads
from ebla.errors import UsageError
from ebla.model.tasks import PACE, Build, pace
from ebla.relations.tasks import NO_RELATION
from ebla.sql.parse import statement_of
from ebla.sql.query import Query
from ebla.tables import new_table
from ebla.tables.write_access import WriteAccess
from ebla.validate import ScriptItem
from ebla.views.analysis import analyze_item
from ebla.views.new_view import NewView, decision


def create_view(
    context: WriteAccess,
    name: str,
    query: Query,
    *,
    names: Sequence[str] = (),
    primary_key: Sequence[str] = (),
    if_not_exists: bool = False,
    or_replace: bool = False,
    options: Mapping[str, object] | None = None,
) -> RelationId | None:
    """Make a view's relation and the tasks that build it, in one commit; `None` if there is one already.

    With `or_replace`, a view of this name stays, and what is made is its replacement (`ebla.views.replace`).
    """
    given = {k.lower(): v for k, v in (options or {}).items()}
    refresh = given.pop("refresh", "auto")
    if refresh not in ("auto", "incremental"):
        raise UsageError(f"refresh: expected 'auto' or 'incremental', found {refresh!r}")
    speed = pace({n: given.pop(n) for n in PACE if n in given})
    tablets, replication, kept = new_table.storage_options(context.settings, given)
    with context.catalog.reading() as connection:
        if if_not_exists and reads.find_relation(connection, name) is not None:
            return None
    source, made_by = statement_of(query)
    statement = replace(
        made_by,
        name=name,
        columns=tuple(names),
        primary_key=tuple(primary_key),
        if_not_exists=if_not_exists,
        or_replace=or_replace,
        options={"refresh": refresh},
    )
    new = NewView(
        name=name,
        query=query,
        checked=analyze_item(context, ScriptItem(source=source, statement=statement), query),
        storage=(tablets, replication),
        reached=context.reached(),
        created={"refresh": refresh, "named": bool(names), **kept},
        build=Build(
            view=NO_RELATION,
            base=NO_RELATION,
            rows_per_minute=speed.get("rows_per_minute"),
            chunk_rows=speed.get("chunk_rows"),
            concurrency=speed.get("concurrency"),
        ),
        if_not_exists=if_not_exists,
        or_replace=or_replace,
    )
    made = context.catalog.decide(lambda reading, _: decision(reading, new, context.node), node=context.node)
    if made is None:
        return None
    hit("build.created")
    return made.relation
