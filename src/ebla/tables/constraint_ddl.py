"""`CHECK` constraints come and go: named and analysed with a new table, added to one with rows, dropped.

Adding one to a table with rows takes two states, as adding an index does. First the condition is there and every new
writer keeps it; once no writer is at work that does not know it, the rows that are there are looked at. If one breaks
it, the condition goes again. A process that dies between leaves a condition that new rows keep and old ones were not
held against; adding it again goes on from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import (
    ConflictError,
    ConstraintError,
    DuplicateNameError,
    EblaError,
    TypeMismatchError,
    UnknownNameError,
    UsageError,
)
from ebla.model import changes as c
from ebla.model.relation import Column, Constraint, Relation, misnamed
from ebla.relations import guard
from ebla.spark import scan as sscan
from ebla.spark.row_expressions import Owner
from ebla.spark.sessions import Sessions
from ebla.sql.statements import CheckSpec
from ebla.tables import reshape
from ebla.tables.constraints import columns_of, direct_of, refuse_frame
from ebla.tables.write_access import WriteAccess

# ---- declaring ------------------------------------------------------------------------------------------


def declared(sessions: Sessions, table: str, columns: Sequence[Column], specs: Iterable[CheckSpec]) -> list[Constraint]:
    """The constraints of a new table, named and analysed. Spark is asked only where DuckDB's answer may differ."""
    made: list[Constraint] = []
    for spec in specs:
        made.append(analysed(sessions, table, columns, spec, made))
    return made


def analysed(
    sessions: Sessions, table: str, columns: Sequence[Column], spec: CheckSpec, others: Sequence[Constraint]
) -> Constraint:
    name = spec.name if spec.name is not None else _free_name(table, spec, columns, others)
    wrong = misnamed(name)
    if wrong is not None:
        raise UsageError(f"constraint {name!r}: {wrong}; choose another name")
    if any(other.name.lower() == name.lower() for other in others):
        raise DuplicateNameError(f"{table}: expected a new name for a constraint, found {name} there already")
    owner = _owner(table, name)
    owner.refuse_changing(spec.text)
    made = Constraint(name=name, text=spec.text, settings=dict(sessions.expression_settings()))
    if direct_of(table, columns, made) is None:
        spark = sessions.of_view(made.settings, small=True)
        [kind] = owner.types(spark, table, columns, [made.text], label=f"constraint {name}", qualified=True)
        if kind != "boolean":
            raise TypeMismatchError(f"{owner.name}: expected a condition, found {kind}")
    return made


def _free_name(table: str, spec: CheckSpec, columns: Sequence[Column], others: Sequence[Constraint]) -> str:
    used = columns_of(spec.text, columns)
    stem = "_".join([table, *([used[0].name] if len(used) == 1 else []), "check"])
    taken = {other.name.lower() for other in others}
    number, name = 1, stem
    while name.lower() in taken:
        number += 1
        name = f"{stem}{number}"
    return name


def _owner(table: str, name: str) -> Owner:
    return Owner(
        name=f"{table}: constraint {name}",
        one="a deterministic condition",
        of_row="a condition of one row",
        why="a row must be right or wrong whenever it is looked at",
    )


# ---- adding and dropping --------------------------------------------------------------------------------


def add_constraint(context: WriteAccess, name: str, spec: CheckSpec) -> None:
    with context.catalog.reading() as connection:
        relation = reads.relation(connection, name)
    guard.require_table(relation)
    begun = next((k for k in relation.constraints if _is_begun(k, spec)), None)
    ours = begun is None
    if begun is None:
        made = analysed(context.sessions, relation.name, relation.visible, spec, relation.constraints)
        begun = replace(made, checked=False)
        _change(context, relation, lambda constraints: (*constraints, begun), f"add constraint {begun.name}")
        hit("constraint.added")
    try:
        _refuse_old(context, name, begun)
    except BaseException as error:  # a row that breaks it, or one that it fails on, or a statement that is cancelled
        if ours or isinstance(error, ConstraintError):  # one that was found begun may be another statement's
            with contextlib.suppress(EblaError):
                _change(
                    context,
                    relation,
                    lambda constraints: _without(constraints, begun.name),
                    f"no constraint {begun.name}",
                )
        raise
    checked = replace(begun, checked=True)

    def kept(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
        if not any((k.name, k.text) == (checked.name, checked.text) for k in constraints):
            raise ConflictError(
                f"{relation.name}: expected constraint {checked.name} to be there once its rows were looked at, found "
                "that another statement removed it; add it again"
            )
        return tuple(checked if k.name == checked.name else k for k in constraints)

    _change(context, relation, kept, f"constraint {begun.name} is kept by all rows")


def _is_begun(begun: Constraint, spec: CheckSpec) -> bool:
    """Whether a process died while it added this very constraint."""
    return not begun.checked and spec.name is not None and (begun.name, begun.text) == (spec.name, spec.text)


def drop_constraint(context: WriteAccess, name: str, constraint: str, *, if_exists: bool) -> None:
    with context.catalog.reading() as connection:
        relation = reads.relation(connection, name)
    guard.require_table(relation)
    found = next((k for k in relation.constraints if k.name.lower() == constraint.lower()), None)
    if found is None:
        if if_exists:
            return
        have = ", ".join(k.name for k in relation.constraints) or "none"
        raise UnknownNameError(f"{relation.name}: expected one of its constraints ({have}), found {constraint}")
    _change(context, relation, lambda constraints: _without(constraints, found.name), f"drop constraint {found.name}")


def _without(constraints: Sequence[Constraint], name: str) -> tuple[Constraint, ...]:
    return tuple(one for one in constraints if one.name != name)


def _change(
    context: WriteAccess,
    relation: Relation,
    change: Callable[[Sequence[Constraint]], tuple[Constraint, ...]],
    reason: str,
) -> None:
    """One commit that writers who planned before it are at most one state behind of."""
    reshape.barrier(context, _present(context.catalog, relation))

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        current = reads.relation_by_id(connection, relation.id)
        if current is None:
            raise UnknownNameError(f"{relation.name}: expected to be there, found dropped")
        wanted = change(current.constraints)
        if wanted == current.constraints:
            return None
        if len({one.name.lower() for one in wanted}) < len(wanted):
            raise DuplicateNameError(f"{current.name}: expected a new name for a constraint, found it there already")
        update = c.SetConstraints(relation=current.id, constraints=wanted)
        return c.on_relation(current.id, f"alter table {current.name}: {reason}", update)

    context.catalog.decide(decide, node=context.node)


def _present(catalog: Catalog, relation: Relation) -> Relation:
    with catalog.reading() as connection:
        return reads.relation_by_id(connection, relation.id) or relation


def _refuse_old(context: WriteAccess, name: str, constraint: Constraint) -> None:
    """Look at the rows that are there, once every writer at work knows the constraint."""
    with context.catalog.reading() as connection:
        relation = reads.relation(connection, name)
    reshape.barrier(context, relation)
    with context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, relation)
        staged = reads.staged_runs(connection, relation)
    if staged:
        raise ConstraintError(
            f"{relation.name}: expected that all its rows are visible, found a load that is staged; "
            "SHOW PROGRESS says how far it is: add the constraint when it is done"
        )
    if not snapshot.level0 and not snapshot.level1:
        return
    spark = context.view_session(constraint.settings, small=False)
    rows = sscan.merged(
        spark, snapshot, context.roots(), context.storage.level0, rows_max=context.settings.level0_rows_max
    )
    refuse_frame(rows, relation, constraint)
