"""Names in a view's query: every column names its source, and a spelling is resolved to the name that is stored.

A query may spell a name in any way that Spark takes for it. In the tree that comes of here names are *folded*: in lower
case, or as they are where the session tells names apart by case. `Mention.columns` leads from a folded name to the
column, under the name that its relation stores; behind it stored names are used alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.parsers.spark import SparkParser
from sqlglot.schema import MappingSchema

from ebla.algebra.nodes import NotUnderstood
from ebla.sql.lex import lex
from ebla.sql.query import Query
from ebla.sql.refs import rewrite

Types = Mapping[str, str]
"""Column, under its stored name, to type, of one input, in order."""

Fold = Callable[[str], str]
CASE_SENSITIVE = "spark.sql.caseSensitive"
_UNIT = "unit"


def _noting_unit(build: Callable[[list[exp.Expr]], exp.Expr], place: int) -> Callable[[list[exp.Expr]], exp.Expr]:
    def built(args: list[exp.Expr]) -> exp.Expr:
        given = args[place] if place < len(args) else None
        unit = str(given.this) if isinstance(given, exp.Literal) and given.is_string else None
        made = build(args)
        made.meta[_UNIT] = unit
        return made

    return built


class EblaSpark(Spark):
    """Spark's SQL, in which units of time are kept as they are written: sqlglot takes `D` for a day, Spark does not."""

    class Parser(SparkParser):
        FUNCTIONS = {  # noqa: RUF012
            **SparkParser.FUNCTIONS,
            "DATE_TRUNC": _noting_unit(SparkParser.FUNCTIONS["DATE_TRUNC"], 0),
            "TRUNC": _noting_unit(SparkParser.FUNCTIONS["TRUNC"], 1),
        }


def unit_written(truncation: exp.Expr) -> str | None:
    """The unit of a truncated time as the query writes it, if it is a string."""
    found = truncation.meta.get(_UNIT)
    return found if isinstance(found, str) else None


def is_case_sensitive(settings: Mapping[str, str]) -> bool:
    """Whether a session with these settings tells names apart by case."""
    return settings.get(CASE_SENSITIVE, "").lower() == "true"


def folding(case_sensitive: bool) -> Fold:
    """What makes two spellings of one name the same."""
    return str if case_sensitive else str.lower


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """One mention of an input in the text. `number` is its place there."""

    number: int
    table: str
    columns: Mapping[str, StoredColumn]
    """Columns by folded name, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualifiedQuery:
    """A query's tree with folded names, and the mentions of inputs, which it calls `leaf_0`, `leaf_1`, …"""

    tree: exp.Expr
    mentions: Mapping[str, Mention]


def qualified(query: Query, inputs: Mapping[str, Types], *, case_sensitive: bool = False) -> QualifiedQuery:
    """The tree of a query over inputs of these names (in lower case) and columns."""
    fold = folding(case_sensitive)
    if any(token.key == "|>" for token in lex(query.text)):
        raise NotUnderstood("pipe syntax")
    dialect = "eblaspark, normalization_strategy=case_sensitive" if case_sensitive else "eblaspark"
    marked, mentions = _marked(query, inputs, fold)
    # The names are folded already; they are not parsed, so that a word of SQL, or a space, needs no quotes here.
    columns: dict[str, object] = {
        leaf: {n: col.type for n, col in one.columns.items()} for leaf, one in mentions.items()
    }
    schema = MappingSchema(columns, dialect=dialect, normalize=False)
    try:
        parsed = sqlglot.parse_one(marked, dialect=dialect)
        # Quoted all, so that two mentions of one column are the same to those who compare expressions.
        tree = qualify(parsed, schema=schema, dialect=dialect, identify=True, validate_qualify_columns=True)
    except (SqlglotError, RecursionError) as error:
        raise NotUnderstood(f"the query could not be analysed ({str(error).splitlines()[0]})") from error
    return QualifiedQuery(tree=tree, mentions=mentions)


def _marked(query: Query, inputs: Mapping[str, Types], fold: Fold) -> tuple[str, dict[str, Mention]]:
    """Give every mention of a table a name of its own, so that two mentions are never confused."""
    names: dict[tuple[int, int], str] = {}
    mentions: dict[str, Mention] = {}
    for number, ref in enumerate(query.refs):
        leaf, table = f"leaf_{number}", ref.name.lower()
        names[ref.start, ref.end] = leaf
        columns = {fold(name): StoredColumn(name=name, type=kind) for name, kind in inputs[table].items()}
        mentions[leaf] = Mention(number=number, table=table, columns=columns)
    return rewrite(query, lambda ref: names[ref.start, ref.end]), mentions
