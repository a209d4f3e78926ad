"""Statements about views, carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from ebla.api.statements.arrivals import Arrivals
from ebla.api.statements.builds import Builds
from ebla.api.statements.progress import Progress
from ebla.api.statements.view_creation import create_view
from ebla.api.statements.view_plans import explain_view
from ebla.model.relation import Kind
from ebla.relations import freshness
from ebla.relations import views as definition
from ebla.relations.guard import refuse_if_read, refuse_if_replaced
from ebla.spark.result import Result, named_like
from ebla.sql import statements as st
from ebla.tables import ddl
from ebla.views import replace
from ebla.views.drop import drop_view

if TYPE_CHECKING:
    from ebla.api.database import Database


class Views:
    """The views of one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context
        self._builds = Builds(database)
        self.progress = Progress(database)
        self.arrivals = Arrivals(database)

    def run(self, statement: st.ViewStatement) -> Result:
        match statement:
            case st.CreateView():
                create_view(self._database, self.arrivals, statement)
                return Result(table=pa.table({}))
            case st.DropView(name=name, if_exists=if_exists, cascade=cascade):
                drop_view(self._context.catalog, self._context.node, name, if_exists=if_exists, cascade=cascade)
                return Result(table=pa.table({}))
            case st.RenameView(name=name, new_name=new):
                with self._context.catalog.reading() as connection:
                    view = definition.load(connection, name)
                    refuse_if_read(connection, view.relation, "rename it")
                    refuse_if_replaced(connection, view.relation)
                ddl.rename_table(self._context.catalog, self._context.node, name, new, Kind.VIEW)
                return Result(table=pa.table({}))
            case st.ShowViews(like=like):
                return self._show(like)
            case st.Flush(names=names):
                return self.arrivals.flush(*names)
            case st.WaitFor(names=names):
                return self.arrivals.wait_for(*names)
            case st.ExplainView():
                return explain_view(self._context, statement)
            case st.AlterBuild(name=name, options=options, of=of, on_hold=on_hold):
                self._builds.alter(
                    replace.name_of_build(self._context.catalog, name), options, Kind(of), on_hold=on_hold
                )
                return Result(table=pa.table({}))
            case st.CancelBuild(name=name, if_exists=if_exists):
                self._builds.cancel(replace.name_of_build(self._context.catalog, name), if_exists=if_exists)
                return Result(table=pa.table({}))
            case st.ShowProgress(name=one):
                return self.progress.show(one)
            case _:
                assert_never(statement)

    def _show(self, like: str | None) -> Result:
        with self._context.catalog.reading() as connection:
            listed = freshness.table(connection, self._context.catalog.clock())
        return Result(table=named_like(listed, like), spark=lambda: self._context.spark)
