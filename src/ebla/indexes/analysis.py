"""Whether a statement can be an index: its columns and expressions, analysed. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebla.errors import (
    DuplicateNameError,
    TypeMismatchError,
    UnknownNameError,
)
from ebla.model.relation import Column, Relation
from ebla.predicates.select import conditions_of
from ebla.relations.indexes import Item
from ebla.spark import session as ssession
from ebla.spark.row_expressions import Owner
from ebla.spark.sessions import Sessions
from ebla.sql.statements import CreateIndex, IndexItem
from ebla.values import types


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAnalysis:
    items: tuple[Item, ...]
    columns: tuple[Column, ...]
    include: tuple[str, ...]
    settings: Mapping[str, str]


def analyze_index(sessions: Sessions, base: Relation, statement: CreateIndex) -> IndexAnalysis:
    """What the index will have, or an error that says what is wrong with it. Changes nothing.

    Spark is asked only where there are expressions, or a condition that compares more than columns with literals.
    """
    given = [_given(base, statement, number, item) for number, item in enumerate(statement.items)]
    settings: Mapping[str, str] = {}
    only_spark = statement.where is not None and conditions_of(statement.where, base) is None
    if only_spark or any(column is None for _, column in given):
        settings = ssession.view_settings(sessions.spark)
        given = _analysed(sessions, base, statement, given, settings)
    columns: list[Column] = []
    for position, (item, column) in enumerate(given):
        assert column is not None
        _require_orderable(statement, item, column)
        if any(c_.physical == column.physical for c_ in columns):
            raise DuplicateNameError(f"index {statement.name}: expected each column once, found {item.text} twice")
        columns.append(_key_column(column, position))
    for column in base.key:
        if all(c_.physical != column.physical for c_ in columns):
            columns.append(_key_column(column, len(columns)))
    include = []
    for name in statement.include:
        column = _column(base, statement, name)
        if any(c_.physical == column.physical for c_ in columns):
            continue  # it is there already
        include.append(column.physical)
        columns.append(_beside(column))
    return IndexAnalysis(
        items=tuple(item for item, _ in given), columns=tuple(columns), include=tuple(include), settings=settings
    )


def _given(base: Relation, statement: CreateIndex, number: int, item: IndexItem) -> tuple[Item, Column | None]:
    if item.column is None:
        made = Item(text=item.text, physical=f"_ebla_x{number}", is_expression=True, descending=item.descending)
        return made, None
    column = _column(base, statement, item.column)
    return Item(text=column.name, physical=column.physical, is_expression=False, descending=item.descending), column


def _column(base: Relation, statement: CreateIndex, name: str) -> Column:
    found = base.column(name)
    if found is None or found.hidden:
        have = ", ".join(column.name for column in base.visible)
        raise UnknownNameError(f"index {statement.name}: expected one of {base.name}'s columns {have}, found {name}")
    return found


def _require_orderable(statement: CreateIndex, item: Item, column: Column) -> None:
    if not types.is_key_type(column.type):
        raise TypeMismatchError(
            f"index {statement.name}: expected a type that can be ordered, found {item.text} {column.type}; "
            "put it behind INCLUDE, or index an expression of it"
        )


def _key_column(column: Column, position: int) -> Column:
    return Column(
        name=column.name,
        physical=column.physical,
        type=column.type,
        nullable=True,
        key_position=position,
        hidden=column.hidden,
    )


def _beside(column: Column) -> Column:
    return Column(name=column.name, physical=column.physical, type=column.type, nullable=True)


def _analysed(
    sessions: Sessions,
    base: Relation,
    statement: CreateIndex,
    given: Sequence[tuple[Item, Column | None]],
    settings: Mapping[str, str],
) -> list[tuple[Item, Column | None]]:
    """Expressions with the types that Spark gives them, if they are functions of one row and of nothing else."""
    texts = [item.text for item, column in given if column is None]
    condition = [] if statement.where is None else [statement.where]
    owner = Owner(
        name=f"index {statement.name}",
        one="a deterministic expression",
        of_row="expressions of one row",
        why="an entry must be the same whenever it is computed",
    )
    for text in (*texts, *condition):
        owner.refuse_changing(text)
    spark = sessions.of_view(settings, small=True)
    kinds = owner.types(spark, base.name, base.visible, (*texts, *condition), label=owner.name, qualified=False)
    if condition and kinds[-1] != "boolean":
        raise TypeMismatchError(f"index {statement.name}: expected a condition behind WHERE, found {kinds[-1]}")
    made: list[tuple[Item, Column | None]] = []
    rest = iter(kinds)
    for item, column in given:
        if column is None:
            column = Column(name=item.text, physical=item.physical, type=next(rest))
        made.append((item, column))
    return made
