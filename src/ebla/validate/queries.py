"""Phase 3 for statements that are no views: names and columns in queries, DML, and the keys of indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ebla.base.issue import Code, Issue, did_you_mean
from ebla.validate.columns import Finding, Resolver, resolve
from ebla.validate.facts import Columns, RelationFacts, ScriptItem
from ebla.validate.scope import Output, Scope, Source, columns_of

_LEFT_OUT = frozenset({Code.NOT_DETERMINISTIC, Code.JOIN_TYPE})
"""What matters to a view alone."""
_STUMBLES = (SqlglotError, RecursionError, AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStep:
    """A piece of a statement that reads, and the relations as they are when the statement runs.

    With a `target` the text is a DELETE, UPDATE or MERGE of it, or (`is_expression`) an expression over its columns.
    """

    item: ScriptItem
    text: str
    begin: int
    """Where the text begins in the statement's."""
    inputs: Mapping[str, RelationFacts]
    target: RelationFacts | None = None
    is_expression: bool = False
    wanted: tuple[str, int] | None = None
    """A table, and how many columns of it an INSERT gives."""


def result_columns(text: str, inputs: Mapping[str, RelationFacts]) -> Columns | None:
    """The names of a query's columns, whose types are left to Spark; `None` if Spark alone can tell the names, too."""
    found = columns_of(resolve(text, inputs)[0])
    return None if found is None else {str(one.name): None for one in found.values()}


def issues(steps: Sequence[QueryStep], present: Callable[[RelationFacts], RelationFacts]) -> list[Issue]:
    """What is wrong with names. `present` knows the columns of views that the same script defines."""
    found: list[Issue] = []
    for step in steps:
        inputs = {name: present(relation) for name, relation in step.inputs.items()}
        target = None if step.target is None else present(step.target)
        for one in _findings(step, inputs, target):
            if one.code not in _LEFT_OUT:
                found.append(step.item.issue(one.code, step.begin + one.at, one.message, one.hint))
    return found


def _findings(step: QueryStep, inputs: Mapping[str, RelationFacts], target: RelationFacts | None) -> list[Finding]:
    resolver = Resolver(step.text, inputs)
    try:
        if target is None:
            tree = sqlglot.parse_one(step.text, dialect="spark")
            if isinstance(tree, exp.Query):
                outputs = resolver.query(tree, {}, None)
                resolver.findings += _width(step, None if outputs is None else len(outputs))
        elif step.is_expression:
            _expression(resolver, step.text, target)
        else:
            _change(resolver, sqlglot.parse_one(step.text, dialect="spark"), target)
    except _STUMBLES:
        return []  # what sqlglot does not understand is left to Spark
    return resolver.findings


def _width(step: QueryStep, found: int | None) -> list[Finding]:
    if step.wanted is None or found is None or found == step.wanted[1]:
        return []
    table, wanted = step.wanted
    message = f"expected {wanted} column{'' if wanted == 1 else 's'} for {table}, found {found}"
    return [Finding(code=Code.COLUMN_COUNT, at=0, message=message, hint="name the columns of the table that are given")]


# ---- changes --------------------------------------------------------------------------------------------


def _source(target: RelationFacts, alias: str | None) -> Source:
    columns = None
    if target.columns is not None:
        columns = {name.lower(): Output(name=name, type=kind) for name, kind in target.columns.items()}
    return Source(alias=(alias or target.name).lower(), columns=columns, label=target.name)


def _expression(resolver: Resolver, text: str, target: RelationFacts) -> None:
    before = "SELECT "
    tree = sqlglot.parse_one(before + text, dialect="spark")
    scope = Scope(sources=[_source(target, None)])
    shifted = Resolver(before + text, {})
    for projection in tree.expressions:
        shifted.expression(projection, scope, aliases=False)
    for one in shifted.findings:
        at = max(0, one.at - len(before))
        resolver.findings.append(Finding(code=one.code, at=at, message=one.message, hint=one.hint))


def _change(resolver: Resolver, tree: exp.Expr, target: RelationFacts) -> None:
    alias = tree.this.alias or None
    mine = Scope(sources=[_source(target, alias)])
    match tree:
        case exp.Delete() | exp.Update() if not (tree.args.get("from_") or tree.args.get("using")):
            _assignments(resolver, tree.expressions, target, mine)
            where = tree.args.get("where")
            if where is not None:
                resolver.expression(where.this, mine, aliases=False)
        case exp.Merge():
            _merge(resolver, tree, target, mine)


def _merge(resolver: Resolver, tree: exp.Merge, target: RelationFacts, mine: Scope) -> None:
    theirs = Scope()
    resolver.relation(tree.args["using"], theirs)
    both = Scope(sources=[*mine.sources, *theirs.sources], blind=theirs.blind)
    resolver.expression(tree.args["on"], both, aliases=False)
    for when in tree.args["whens"].expressions:
        scope = both if when.args.get("matched") else mine if when.args.get("source") else theirs
        condition, then = when.args.get("condition"), when.args["then"]
        if condition is not None:
            resolver.expression(condition, scope, aliases=False)
        match then:
            case exp.Update():
                _assignments(resolver, then.expressions, target, scope)
            case exp.Insert(this=exp.Tuple() as columns):
                for column in columns.expressions:
                    _target_column(resolver, column, target)
                if isinstance(then.expression, exp.Tuple):
                    _values(resolver, then.expression.expressions, scope)


def _assignments(resolver: Resolver, made: Sequence[exp.Expr], target: RelationFacts, scope: Scope) -> None:
    for one in made:
        if isinstance(one, exp.EQ):
            _target_column(resolver, one.this, target)
            _values(resolver, [one.expression], scope)


def _values(resolver: Resolver, values: Sequence[exp.Expr], scope: Scope) -> None:
    for value in values:
        if not (isinstance(value, exp.Column) and value.name.lower() == "default"):
            resolver.expression(value, scope, aliases=False)


def _target_column(resolver: Resolver, column: exp.Expr, target: RelationFacts) -> None:
    if not isinstance(column, exp.Column) or target.columns is None:
        return
    name = column.parts[-1]
    if name.name.lower() not in {c.lower() for c in target.columns}:
        message = f"expected a column of {target.name}, found {name.name}"
        hint = did_you_mean(name.name, target.columns, f"columns of {target.name}")
        resolver.add(Code.UNKNOWN_COLUMN, name, message, hint)
