"""Statements about views, carried out."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from ebla.catalog import reads
from ebla.errors import EblaError
from ebla.result import Result
from ebla.sql import statements as st
from ebla.tables import ddl
from ebla.views import create, definition, explain, maintain
from ebla.views.guard import refuse_if_read
from ebla.views.handler import Handler
from ebla.views.plan import EpochPlan

if TYPE_CHECKING:
    from ebla.database import Database


class Views:
    """The views of one open database. Epochs of this process run one at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context
        self._lock = threading.RLock()
        self.handler = Handler(self._context, self._lock, database.maintainer.wake)

    def run(self, statement: st.ViewStatement) -> Result:
        match statement:
            case st.CreateView():
                self._create(statement)
                return Result(table=pa.table({}))
            case st.DropView(name=name, if_exists=if_exists):
                create.drop_view(self._context, name, if_exists=if_exists)
                return Result(table=pa.table({}))
            case st.RenameView(name=name, new_name=new):
                with self._context.catalog.reading() as connection:
                    view = definition.load(connection, name)
                    refuse_if_read(connection, view.relation, "rename it")
                ddl.rename_table(self._context, name, new)
                return Result(table=pa.table({}))
            case st.ShowViews():
                return self._show()
            case st.Flush(names=names):
                return self.flush(*names)
            case st.WaitFor(names=names):
                return self.flush(*names)
            case st.ExplainView():
                return self._explain(statement)
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
            options=statement.options,
        )
        if not made or statement.asynchronous:
            self.handler.wake()
            return
        try:
            self.flush(statement.name)
        except EblaError:
            # A view that cannot be built is not left behind half made.
            create.drop_view(self._context, statement.name, if_exists=True)
            raise

    def flush(self, *names: str) -> Result:
        """Bring views up to every write committed before this call."""
        with self._context.catalog.reading() as connection:
            for name in names:
                definition.load(connection, name)
        with self._lock:
            done = maintain.refresh_all(self._context, list(names) or None)
        for one in done:
            self._database.maintainer.wake(one.view)
        failed = next((d for d in done if d.plan == "failed" and (not names or d.view in names)), None)
        if failed is not None and names:
            from ebla.errors import ConflictError

            raise ConflictError(f"view {failed.view}: stopped: {failed.reason}; mend the rows, then FLUSH it again")
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

    def _show(self) -> Result:
        with self._context.catalog.reading() as connection:
            views = definition.all_views(connection)
            newest = reads.current_version(connection)
            times = reads.committed_at(connection, [v.position.applied_version for v in views if v.position])
        now = self._context.catalog.clock()
        rows = []
        for view in views:
            at = view.position
            age = None if at is None else (now - times.get(at.applied_version, now)) / 1e6
            rows.append(
                {
                    "name": view.relation.name,
                    "status": "building" if at is None else at.status,
                    "applied_version": None if at is None else int(at.applied_version),
                    "behind": None if at is None else int(newest - at.applied_version),
                    "age_s": age,
                    "last_plan": None if at is None else at.epoch.get("plan"),
                    "last_epoch_s": None if at is None else at.epoch.get("seconds"),
                    "message": None if at is None else at.message,
                }
            )
        schema = pa.schema(
            [
                ("name", pa.string()),
                ("status", pa.string()),
                ("applied_version", pa.int64()),
                ("behind", pa.int64()),
                ("age_s", pa.float64()),
                ("last_plan", pa.string()),
                ("last_epoch_s", pa.float64()),
                ("message", pa.string()),
            ]
        )
        return Result(table=pa.Table.from_pylist(rows, schema=schema))

    def _explain(self, statement: st.ExplainView) -> Result:
        plans: dict[str, EpochPlan]
        if statement.create is not None:
            made = statement.create
            checked = create.check(self._context, made.query, names=made.columns, primary_key=made.primary_key)
            plans = checked.plans()
        else:
            with self._context.catalog.reading() as connection:
                view = definition.load(connection, statement.name)
            plans = create.check(self._context, view.query).plans()
        return Result(
            table=pa.table(
                {
                    "plan": [explain.as_text(statement.name, plans)],
                    "json": [json.dumps(explain.as_json(statement.name, plans))],
                    "mermaid": [explain.as_mermaid(statement.name, plans)],
                }
            )
        )
