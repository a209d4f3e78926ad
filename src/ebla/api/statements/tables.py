"""Statements about tables, carried out: what they are, and keeping their files in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.api import creation, system
from ebla.api.statements import answers
from ebla.catalog import reads
from ebla.model.relation import Column, Constraint, Kind, Relation
from ebla.relations import copies
from ebla.spark.result import Result, named_like
from ebla.sql import statements as st
from ebla.tables import column_ddl, compaction, constraint_ddl, ddl, truncation
from ebla.values import types

if TYPE_CHECKING:
    from ebla.api.database import Database


class Tables:
    """Statements about the tables of one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context

    def define(self, statement: st.TableDefinition) -> Result:
        """Create, alter or drop a table."""
        self._define(statement)
        return answers.columns(self._context.sessions, {})

    def _define(self, statement: st.TableDefinition) -> None:
        context = self._context
        match statement:
            case st.CreateTable():
                ddl.create_table(
                    context,
                    statement.name,
                    column_ddl.columns_of(context.sessions, statement.name, statement.columns),
                    statement.primary_key,
                    if_not_exists=statement.if_not_exists,
                    or_replace=statement.or_replace,
                    comment=statement.comment,
                    options=statement.options,
                    constraints=self._constraints(statement),
                )
            case st.AddConstraint(table=table, check=check):
                constraint_ddl.add_constraint(context, table, check)
            case st.DropConstraint(table=table, name=name, if_exists=if_exists):
                constraint_ddl.drop_constraint(context, table, name, if_exists=if_exists)
            case st.DropTable(name=name, if_exists=if_exists, cascade=cascade):
                ddl.drop_table(context.catalog, context.node, name, if_exists=if_exists, cascade=cascade)
            case st.RenameTable(table=table, new_name=new):
                ddl.rename_table(context.catalog, context.node, table, new)
            case st.AddColumns(table=table, columns=specs, if_not_exists=optional):
                added = column_ddl.columns_of(context.sessions, table, specs)
                fills = partial(column_ddl.fills_rows, added=added)
                column_ddl.add_columns(context, table, added, if_not_exists=optional, fills=fills)
            case st.SetDefault(table=table, column=column, default=text):
                column_ddl.set_default(context, table, column, text)
            case st.DropColumns(table=table, columns=names, cascade=cascade):
                column_ddl.drop_columns(context, table, names, cascade=cascade)
            case st.RenameColumn(table=table, column=column, new_name=new):
                column_ddl.rename_column(context, table, column, new)
            case st.AlterColumnType(table=table, column=column, type=kind):
                column_ddl.widen_column(context, table, column, kind)
            case st.SetTableComment(table=table, comment=comment):
                ddl.comment_table(context.catalog, context.node, table, comment)
            case st.SetColumnComment(table=table, column=column, comment=comment):
                column_ddl.comment_column(context, table, column, comment)

    def _constraints(self, statement: st.CreateTable) -> Sequence[Constraint]:
        """Analysed only if the table is created."""
        if statement.if_not_exists:
            with self._context.catalog.reading() as connection:
                if reads.find_relation(connection, statement.name) is not None:
                    return ()
        columns = [_column(spec) for spec in statement.columns]
        return constraint_ddl.declared(self._context.sessions, statement.name, columns, statement.checks)

    def maintain(self, statement: st.Truncate | st.Compact | st.Vacuum) -> Result:
        if isinstance(statement, st.Truncate):
            context = self._context
            version = truncation.truncate(context.catalog, context.node, context.holder, statement.table)
            return answers.row(context.sessions, version=int(version))
        if isinstance(statement, st.Vacuum):
            done = self._database.vacuum(statement.table, retain_s=statement.retain_seconds)
            return answers.row(
                self._context.sessions,
                horizon=int(done.horizon),
                files=done.files,
                bytes=done.bytes,
                orphans=done.orphans,
            )
        with self._context.catalog.reading() as connection:
            names = [statement.table] if statement.table else reads.relation_names(connection)
        found = [compaction.compact(self._context, name) for name in names]
        return answers.columns(
            self._context.sessions,
            {
                "relation": [f.relation for f in found],
                "tablets": [f.tablets for f in found],
                "folded_runs": [f.folded_runs for f in found],
                "version": pa.array([f.version for f in found], pa.int64()),
            },
        )

    def show_create(self, what: str, name: str) -> Result:
        with self._context.catalog.reading() as connection:
            return answers.columns(
                self._context.sessions,
                {"statement": pa.array([creation.statement(connection, what, name)], pa.string())},
            )

    def show_tables(self, like: str | None) -> Result:
        with self._context.catalog.reading() as connection:
            every = [reads.relation(connection, n) for n in reads.relation_names(connection)]
        found = [r for r in every if r.kind is not Kind.INDEX]
        listed = pa.table(
            {
                "name": pa.array([r.name for r in found], pa.string()),
                "kind": pa.array([r.kind.value for r in found], pa.string()),
                "primary_key": pa.array([_key_text(r) for r in found], pa.string()),
                "tablets": pa.array([r.tablets for r in found], pa.int64()),
                "replication": pa.array([r.replication for r in found], pa.int64()),
                "comment": pa.array([r.comment for r in found], pa.string()),
            }
        )
        return Result(table=named_like(listed, like), spark=lambda: self._context.spark)

    def show_replication(self, like: str | None) -> Result:
        with self._context.catalog.reading() as connection:
            found = copies.summary(connection)
        return Result(table=named_like(found, like), spark=lambda: self._context.spark)

    def describe(self, name: str, *, is_system: bool) -> Result:
        if is_system:
            fields = list(system.table_schema(name))
            return answers.columns(
                self._context.sessions,
                {"column": [f.name for f in fields], "type": [types.from_arrow(f.type) for f in fields]},
            )
        with self._context.catalog.reading() as connection:
            relation = reads.relation(connection, name)
        rows: list[tuple[object, ...]] = [
            (
                c.name,
                c.type,
                c.nullable,
                None if c.key_position is None else c.key_position + 1,
                c.comment,
                None if c.default is None else c.default.text,
            )
            for c in relation.visible
        ]
        rows += [(f"# check {one.name}", one.text, None, None, None, None) for one in relation.constraints]
        if relation.kind is Kind.VIEW:
            rows.append((creation.DEFINITION, str(relation.options["query"]), None, None, relation.comment, None))
        kinds = (pa.string(), pa.string(), pa.bool_(), pa.int64(), pa.string(), pa.string())
        arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        return answers.columns(
            self._context.sessions,
            dict(zip(("column", "type", "nullable", "key", "comment", "default"), arrays, strict=True)),
        )


def _column(spec: st.ColumnSpec) -> Column:
    return Column(
        name=spec.name,
        physical=spec.name,
        type=types.canonical(spec.type),
        nullable=spec.nullable,
        comment=spec.comment,
    )


def _key_text(relation: Relation) -> str | None:
    return None if relation.keyless else ", ".join(c.name for c in relation.key)
