"""Statements about views, carried out."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from ebla.algebra import explain
from ebla.base.ids import RelationId
from ebla.catalog import reads
from ebla.errors import CatalogUnavailableError, EblaError, ViewStoppedError
from ebla.model.relation import Kind
from ebla.relations import builds as shown
from ebla.relations import failed_builds as failed
from ebla.relations import freshness
from ebla.relations import indexes as index_definition
from ebla.relations import views as definition
from ebla.relations.cut import cut_of
from ebla.relations.guard import refuse_if_read, refuse_if_replaced
from ebla.relations.readers import readers
from ebla.relations.shapes import how_built
from ebla.relations.views import inputs_of
from ebla.spark.result import Result, named_like
from ebla.sql import statements as st
from ebla.tables import ddl
from ebla.values import types
from ebla.views import analysis, create, replace
from ebla.views.drop import drop_view

if TYPE_CHECKING:
    from ebla.api.database import Database


class Views:
    """The views of one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context
        self._epochs = database.epochs

    def run(self, statement: st.ViewStatement) -> Result:
        match statement:
            case st.CreateView():
                self._create(statement)
                return Result(table=pa.table({}))
            case st.DropView(name=name, if_exists=if_exists, cascade=cascade):
                drop_view(self._context, name, if_exists=if_exists, cascade=cascade)
                return Result(table=pa.table({}))
            case st.RenameView(name=name, new_name=new):
                with self._context.catalog.reading() as connection:
                    view = definition.load(connection, name)
                    refuse_if_read(connection, view.relation, "rename it")
                    refuse_if_replaced(connection, view.relation)
                ddl.rename_table(self._context, name, new, Kind.VIEW)
                return Result(table=pa.table({}))
            case st.ShowViews(like=like):
                return self._show(like)
            case st.Flush(names=names):
                return self.flush(*names)
            case st.WaitFor(names=names):
                return self.wait_for(*names)
            case st.ExplainView():
                return self._explain(statement)
            case st.AlterBuild(name=name, options=options, of=of, on_hold=on_hold):
                self._database.builds.alter(self._name_built(name), options, Kind(of), on_hold=on_hold)
                return Result(table=pa.table({}))
            case st.CancelBuild(name=name, if_exists=if_exists):
                self._database.builds.cancel(self._name_built(name), if_exists=if_exists)
                return Result(table=pa.table({}))
            case st.ShowProgress(name=one):
                return self._progress(one)
            case _:
                assert_never(statement)

    def _create(self, statement: st.CreateView) -> None:
        made = create.create_view(
            self._context,
            statement.name,
            statement.query,
            names=statement.columns,
            primary_key=statement.primary_key,
            if_not_exists=statement.if_not_exists,
            or_replace=statement.or_replace,
            options=statement.options,
        )
        if made is None or statement.asynchronous:
            self._database.wake()
            return
        try:
            self._built(statement.name)
        except EblaError as error:
            # A view that cannot be built is not left behind half made; one that is tried again keeps what it has.
            if not error.goes_on and not isinstance(error, CatalogUnavailableError):
                self._abandon(made, statement)
            raise
        except KeyboardInterrupt:
            # What a statement that is cancelled had begun is gone, as if it had never been run.
            with contextlib.suppress(EblaError):
                self._abandon(made, statement)
            raise
        finally:
            self._database.wake()

    def flush(self, *names: str) -> Result:
        """Bring views up to every write committed before this call."""
        self._require(names)
        with self._saying_what_goes_on():
            self._database.waits.wait(names or None, retry=bool(names))
        for view in self._require(names):
            if view.building:
                raise _stopped(view.relation.name, None if view.position is None else view.position.message)
        done = self._epochs.flush(*names)
        asked = {n.lower() for n in names}
        for one in done:
            if one.stopped and one.view.lower() in asked:
                raise _stopped(one.view, one.reason)
            if one.waits and asked and one.error is not None:
                raise _waits(one.view, one.error) from one.error  # one that was asked for, or that one of them reads
        return Result(
            table=pa.table(
                {
                    "view": pa.array([d.view for d in done], pa.string()),
                    "applied_version": pa.array([int(d.applied_version) for d in done], pa.int64()),
                    "plan": pa.array([d.plan for d in done], pa.string()),
                    "reason": pa.array([d.reason for d in done], pa.string()),
                    "gained": pa.array([d.gained for d in done], pa.int64()),
                    "lost": pa.array([d.lost for d in done], pa.int64()),
                    "seconds": pa.array([d.seconds for d in done], pa.float64()),
                }
            )
        )

    def wait_for(self, *names: str) -> Result:
        """Return when these views and indexes are built; the first process that can builds them."""
        with self._saying_what_goes_on():
            return self._built(*names)

    def _built(self, *names: str) -> Result:
        with self._context.catalog.reading() as connection:
            for name in names:
                failure = failed.of_name(connection, name)
                if failure is not None:
                    raise failed.error_of(failure, later=True)
            of_index = [n for n in names if (r := reads.find_relation(connection, n)) and r.kind is Kind.INDEX]
            indexes = [index_definition.load(connection, name) for name in of_index]
        names = tuple(name for name in names if name not in of_index)
        self._require(names)
        beside = [self._name_built(name) for name in names]
        self._database.waits.wait(beside)
        for view in self._require([name for name in beside if name not in names and self._is_there(name)]):
            if view.position is None or not view.position.built:
                name = view.relation.name.removeprefix(definition.REPLACEMENT)
                raise _stopped(name, None if view.position is None else view.position.message)
        replace.exchange(self._context)
        self._database.waits.wait_indexes([index for index in indexes if not index.readable])
        views = self._require(names)
        for view in views:
            if view.position is None or view.position.failed:
                raise _stopped(view.relation.name, None if view.position is None else view.position.message)
        versions = [int(v.position.applied_version) for v in views if v.position is not None]
        none = [None] * len(indexes)  # its writers keep it: it is never behind
        return Result(
            table=pa.table(
                {
                    "view": pa.array([*(v.relation.name for v in views), *(i.name for i in indexes)], pa.string()),
                    "applied_version": pa.array([*versions, *none], pa.int64()),
                }
            )
        )

    @contextlib.contextmanager
    def _saying_what_goes_on(self) -> Iterator[None]:
        """Whoever stops waiting for a build does not stop the build, and is told so."""
        try:
            yield
        except KeyboardInterrupt as interrupted:
            interrupted.add_note("only the waiting ended: the build goes on; CANCEL BUILD ends it")
            raise

    def _abandon(self, made: RelationId, statement: st.CreateView) -> None:
        """Drop what a statement has begun to build. A view that it was to replace stays, or has been replaced."""
        with self._context.catalog.reading() as connection:
            left = reads.relation_by_id(connection, made)
        if left is not None and (not statement.or_replace or left.name.startswith(definition.REPLACEMENT)):
            drop_view(self._context, left.name, if_exists=True)

    def _name_built(self, name: str) -> str:
        with self._context.catalog.reading() as connection:
            return replace.name_built(connection, name)

    def _is_there(self, name: str) -> bool:
        with self._context.catalog.reading() as connection:
            return reads.find_relation(connection, name) is not None

    def _progress(self, name: str | None) -> Result:
        if name is not None:
            one = self._database.builds.progress(self._name_built(name))
            found = types.table_of(shown.COLUMNS, [one.row()])
        else:
            with self._context.catalog.reading() as connection:
                found = shown.table(connection, self._context.catalog.clock())
        return Result(table=found, spark=lambda: self._context.spark)

    def _require(self, names: Sequence[str]) -> list[definition.View]:
        if not names:
            return []
        with self._context.catalog.reading() as connection:
            return [definition.load(connection, name) for name in names]

    def _show(self, like: str | None) -> Result:
        with self._context.catalog.reading() as connection:
            shown = freshness.table(connection, self._context.catalog.clock())
        return Result(table=named_like(shown, like), spark=lambda: self._context.spark)

    def _explain(self, statement: st.ExplainView) -> Result:
        dictionaries = state = None
        if statement.create is not None:
            made = statement.create
            query = made.query
            checked = analysis.check(self._context, query, names=made.columns, primary_key=made.primary_key)
            how = checked.how_built(inputs_of(query))
        else:
            with self._context.catalog.reading() as connection:
                view = definition.load(connection, statement.name)
                relations = {n: reads.relation(connection, n) for n in view.inputs}
                batch = next((sorted(names) for v, _, names in readers(connection) if v.relation == view.relation), [])
            how, state = how_built(view, relations), view.state
            if batch:
                dictionaries = explain.Dictionaries(names=tuple(batch), cut=cut_of(view, relations, batch))
            checked = analysis.check(self._context, view.query)
        name, plans, direct = statement.name, checked.plans(), checked.direct
        text = explain.as_text(name, plans, how, direct=direct, dictionaries=dictionaries, state=state)
        value = explain.as_json(name, plans, how, direct=direct, dictionaries=dictionaries, state=state)
        drawn = explain.as_mermaid(name, plans)
        return Result(table=pa.table({"plan": [text], "json": [json.dumps(value)], "mermaid": [drawn]}))


def _stopped(view: str, why: str | None) -> ViewStoppedError:
    return ViewStoppedError(
        f"view {view}: stopped: {why}; mend the rows; then it goes on by itself, or at once with FLUSH {view}"
    )


def _waits(view: str, error: Exception) -> EblaError:
    if isinstance(error, EblaError):
        return error
    return EblaError(f"view {view}: unexpected {type(error).__name__}: {error}; it is tried again by itself")
