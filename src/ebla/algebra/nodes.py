"""A view's query as a tree that shows how values travel from its inputs to its result.

The tree is for analysis only: rows are always computed by the user's own query text. A node therefore keeps no
expressions, only *values*. A value is an identity: a column that is passed on, joined, grouped by or renamed keeps
the same value, so the tree answers "which column of which input is this?" at any height. A computed column is a value
without an origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from ebla.sql.query import Query

Value = NewType("Value", int)
GROUPING_SETS = "grouping sets"
"""What a group of ROLLUP, CUBE or GROUPING SETS is called."""


class JoinKind(StrEnum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    """Also any subquery in an expression: rows of the left depend on those of the right that its condition equates."""
    ANTI = "anti"
    NULL_AWARE_ANTI = "null-aware anti"
    """`NOT IN`: one NULL on the right, and no row is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """An expression over columns of one input, in Spark's words (`ebla.algebra.computations`)."""

    text: str
    columns: tuple[str, ...]
    type: str

    def __str__(self) -> str:
        return self.text.replace("`", "")


Column = str | Computation


def stored(columns: Sequence[Column]) -> list[str]:
    """The columns of an input that these are made of."""
    parts = [column.columns if isinstance(column, Computation) else (column,) for column in columns]
    return list(dict.fromkeys(name for part in parts for name in part))


@dataclass(frozen=True, eq=False, kw_only=True)
class Leaf:
    """One mention of an input in the query. `number` is its place among the table references of the text.

    An expression over its columns that the query names is a column of it, too.
    """

    number: int
    table: str
    columns: Mapping[Value, Column]

    @property
    def values(self) -> frozenset[Value]:
        return frozenset(self.columns)

    def names(self, values: tuple[Value, ...]) -> tuple[Column, ...] | None:
        """The columns that hold these values, or `None` if one of them is not here."""
        return tuple(self.columns[v] for v in values) if all(v in self.columns for v in values) else None

    def stores(self, value: Value) -> bool:
        """Whether a value is that of a column of the input."""
        return isinstance(self.columns.get(value), str)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pass:
    """Filter or projection: rows go or stay, values are passed on or computed.

    A generator such as `explode` makes several rows of one (`multiplies`): its key names them no more.
    """

    child: Node
    computed: frozenset[Value] = frozenset()
    multiplies: bool = False

    @property
    def values(self) -> frozenset[Value]:
        return self.child.values | self.computed


@dataclass(frozen=True, eq=False, kw_only=True)
class Join:
    kind: JoinKind
    left: Node
    right: Node
    pairs: tuple[tuple[Value, Value], ...]
    """Values that the condition equates, left and right. Other conditions only make fewer rows match."""
    fused: tuple[Value, ...] = ()
    """Of a full join, for each pair the value that a row has on the side, or sides, that it comes from."""
    closed: bool = False
    """The right is a subquery that reads nothing of the left: it is the same for every row."""

    @property
    def values(self) -> frozenset[Value]:
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI, JoinKind.NULL_AWARE_ANTI):
            return self.left.values
        return self.left.values | self.right.values | frozenset(self.fused)

    @property
    def nullable(self) -> frozenset[Value]:
        """Values that are NULL in a row without a partner."""
        match self.kind:
            case JoinKind.LEFT:
                return self.right.values
            case JoinKind.RIGHT:
                return self.left.values
            case JoinKind.FULL:
                return self.left.values | self.right.values
            case _:
                return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """One column of a window's order."""

    value: Value
    descending: bool
    nulls_first: bool


class Carry(StrEnum):
    """What a running window makes of a row is made of what it makes of the row before, and of the rows from there."""

    COUNT = "count"
    """`row_number`, `dense_rank`, `count`: the value of the row before is added."""
    RANK = "rank"
    """The number of all rows before is added."""
    SUM = "sum"
    LEAST = "least"
    GREATEST = "greatest"
    FIRST = "first"
    """The value of the row before stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A window that is an output column, from the first row of all to the current one."""

    place: int
    """Among the output columns."""
    carry: Carry
    order: tuple[Along, ...]
    """The columns of its order up to the first that is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Onward:
    """Windows without `PARTITION BY` whose orders begin with one column. A row depends on no row that is more than
    `ahead` rows behind it there."""

    first: Along
    ahead: int = 0
    """How many rows in front of one that changes may change with it: `lead`, frames that end behind the row."""
    before: int | None = None
    """Of how many rows in front of it a row is made, beside what `running` says. `None`: of all of them."""
    running: tuple[Running, ...] = ()
    shows_all: bool = True
    """Whether each row of the windows is one of the SELECT."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Group:
    """Aggregation, `DISTINCT`, window functions: each result depends on all rows that share the `by` values.

    A window keeps its rows and their other values (`keeps_rows`); an aggregation keeps only what it groups by.
    Without `by` every row depends on every other one.
    """

    child: Node
    by: frozenset[Value]
    computed: frozenset[Value] = frozenset()
    keeps_rows: bool = False
    what: str = "aggregation"
    onward: Onward | str | None = None
    """Of windows over all rows, how a row depends on the others, or why it depends on all of them."""

    @property
    def values(self) -> frozenset[Value]:
        return (self.child.values if self.keeps_rows else self.by) | self.computed


@dataclass(frozen=True, eq=False, kw_only=True)
class Branches:
    """`UNION`, `INTERSECT`, `EXCEPT`: each result value is, by branch, a value of that branch."""

    children: tuple[Node, ...]
    outputs: tuple[Value, ...]
    inputs: tuple[tuple[Value, ...], ...]

    @property
    def values(self) -> frozenset[Value]:
        return frozenset(self.outputs)

    def into(self, branch: int, values: tuple[Value, ...]) -> tuple[Value, ...]:
        to = dict(zip(self.outputs, self.inputs[branch], strict=True))
        return tuple(to[v] for v in values)


Node = Leaf | Pass | Join | Group | Branches


def leaves(node: Node) -> Iterator[Leaf]:
    return (one for one in walk(node) if isinstance(one, Leaf))


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    match node:
        case Pass(child=child) | Group(child=child):
            yield from walk(child)
        case Join(left=left, right=right):
            yield from walk(left)
            yield from walk(right)
        case Branches(children=children):
            for child in children:
                yield from walk(child)


def holds(node: Node, leaf: Leaf) -> bool:
    return any(one is leaf for one in leaves(node))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """One column of ORDER BY: its place among the output columns."""

    place: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedLimit:
    """`ORDER BY … LIMIT count OFFSET offset` at the end of a query."""

    order: tuple[Ordering, ...]
    count: int
    offset: int = 0

    @property
    def end(self) -> int:
        """How many rows of the query are read to have those that are shown."""
        return self.offset + self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedSubquery:
    """A subquery that reads nothing of what stands around it, in the user's own text.

    While it gives what it gave, changes of its inputs mean nothing to the query.
    """

    query: Query
    leaves: tuple[int, ...]
    """The places of its table references among those of the whole query."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Shape:
    """A query understood: its tree, and the value of each output column in order."""

    root: Node
    outputs: tuple[tuple[str, Value], ...]
    first: OrderedLimit | None = None
    """Only these rows of what the tree gives are the query's."""
    closed: tuple[ClosedSubquery, ...] = ()
    """Subqueries of which every row may depend on every row that they read."""
    used: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The columns of each input that the query mentions."""


class NotUnderstood(Exception):
    """The query has a part whose changes cannot be followed; the view is kept by full refresh. Says which part."""
