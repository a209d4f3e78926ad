"""Phase 2: names and structure. Statements are followed in order, as if each of them had worked.

The state between two statements is a `World`: which tables, views and handlers there would be. A view gets the columns
of its inputs at that moment; its own are found by the next phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from ebla.base.issue import Issue, has_errors
from ebla.sql import cluster_statements as cs
from ebla.sql import statements as st
from ebla.sql.query import Query
from ebla.validate.definitions import Definition, define
from ebla.validate.facts import ScriptItem, ViewStep, Warehouse
from ebla.validate.inputs import create_view
from ebla.validate.queries import QueryStep
from ebla.validate.rows import change, insert, read
from ebla.validate.state import World, definitions
from ebla.validate.walk import Walk


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedScript:
    """What the statements define and read, in order, and what is wrong with names and structure."""

    views: Sequence[ViewStep]
    """Without those in which something is wrong."""
    queries: Sequence[QueryStep]
    issues: list[Issue]


def follow(items: Sequence[ScriptItem], warehouse: Warehouse) -> FollowedScript:
    world, later = World.of(warehouse), definitions(items)
    views, queries, issues = list[ViewStep](), list[QueryStep](), list[Issue]()
    for item in items:
        walk = Walk(item=item, world=world, later=later)
        _step(walk)
        issues += walk.issues
        if not has_errors(walk.issues):
            views += walk.views
            queries += walk.queries
    return FollowedScript(views=views, queries=queries, issues=issues)


NAMELESS = (
    cs.ClusterStatement
    | st.ShowTables
    | st.ShowViews
    | st.ShowHandlers
    | st.ShowJobs
    | st.ShowIndexes
    | st.ShowReplication
    | st.UserStatement
)
"""Statements that name no relation."""


OF_TABLE = st.SetTableComment | st.BuildIndexes | cs.MoveTablet | cs.ExplainTablet | cs.SetTableOptions
"""Statements about one table or view."""


def _step(walk: Walk) -> None:  # noqa: C901 dispatch by match
    statement = walk.item.statement
    if isinstance(statement, Definition):
        define(walk, statement)
        return
    match statement:
        case Query():
            read(walk, statement)
        case st.Explain(query=query):
            read(walk, query)
        case st.Insert():
            insert(walk, statement)
        case st.Update() | st.Delete() | st.Merge():
            change(walk, statement)
        case st.Truncate(table=table) | st.Load(table=table) | st.DropConstraint(table=table):
            walk.writable(table)
        case st.AddConstraint(table=table, check=condition):
            if (found := walk.writable(table)) is not None:
                walk.expression(found, condition.text)
        case st.SetDefault(table=table, column=column):
            walk.has_column(walk.writable(table), column)
        case st.SetColumnComment(table=table, column=column):
            walk.has_column(walk.relation(table), column)
        case st.ExplainView(create=st.CreateView() as made):
            create_view(walk, made, explained=True)
        case st.ExplainView(name=name) | st.ShowCreate(what="view", name=name):
            walk.view(name)
        case st.Check(what="view", name=name) | st.Repair(what="view", name=name):
            walk.view(name)
        case st.Flush(names=names):
            for name in names:
                walk.view(name)
        case st.WaitFor(names=names):
            for name in names:
                walk.derived(name)
        case st.AlterBuild(name=name):
            walk.derived(name)
        case st.Check(what="index", name=name) | st.Repair(what="index", name=name):
            walk.index(name)
        case st.ShowCreate(what="index", name=name) | st.ExplainIndex(name=name):
            walk.index(name)
        case st.AlterHandler(name=name) | st.ShowCreate(what="handler", name=name):
            walk.handler(name)
        case st.ShowProgress(name=name):
            if name is not None:
                walk.derived(name)
        case st.Compact(table=name) | st.Vacuum(table=name) | cs.ShowTablets(table=name):
            if name is not None:
                walk.relation(name)
        case st.Describe(name=name, system=system):
            if not system:
                walk.relation(name)
        case st.Check(name=name) | st.Repair(name=name) | st.ShowCreate(name=name):
            walk.relation(name)
        case _ if isinstance(statement, OF_TABLE):
            walk.relation(statement.table)
        case _ if isinstance(statement, NAMELESS):
            pass
        case _:
            assert_never(statement)
