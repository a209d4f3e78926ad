"""Which names an expression of a query can use, and what a name means there.

Spark has the last word on every query. So an answer here is only *found*, *missing* or *ambiguous* when nothing in the
query could make Spark see it otherwise; in every other case it is *unsure*, and the validator stays silent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column of a query's result. `name` is `None` where Spark makes one up; `at` is its place in the text."""

    name: str | None
    type: str | None = None
    at: int = 0


Outputs = tuple[Output, ...] | None
"""`None` if only Spark can tell the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A relation in FROM. `columns` has lower-case names; `None` if only Spark can tell them."""

    alias: str | None
    columns: Mapping[str, Output] | None
    label: str = ""
    hidden: bool = False
    """The right side of a semi- or anti-join, which only its own ON sees."""


class Answer(Enum):
    FOUND = auto()
    UNSURE = auto()
    AMBIGUOUS = auto()
    NO_COLUMN = auto()
    """The alias is there, the column is not."""
    NOTHING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundColumn:
    answer: Answer
    column: Output | None = None
    sources: tuple[Source, ...] = ()


@dataclass(slots=True, kw_only=True)
class Scope:
    ctes: Mapping[str, Outputs] = field(default_factory=dict)
    outer: Scope | None = None
    sources: list[Source] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)
    """Names that SELECT gives, which later expressions of it may use."""
    merged: set[str] = field(default_factory=set)
    """Columns of USING: one for both sides."""
    blind: bool = False
    """Something in FROM has names that are not known here."""
    merges_all: bool = False
    """NATURAL JOIN."""

    def chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def find(self, names: Sequence[str], *, aliases: bool) -> FoundColumn:
        """What a dotted name in lower case means here, or in a query around this one."""
        closest: FoundColumn | None = None
        for scope in self.chain():
            # A subquery may stand in a clause of the outer query that sees what its SELECT gives.
            found = scope._here(names, aliases=aliases or scope is not self)
            if found.answer in (Answer.FOUND, Answer.UNSURE, Answer.AMBIGUOUS):
                return found
            if closest is None and found.answer is Answer.NO_COLUMN:
                closest = found
        return closest or FoundColumn(answer=Answer.NOTHING)

    def _here(self, names: Sequence[str], *, aliases: bool) -> FoundColumn:
        if self.blind:
            return FoundColumn(answer=Answer.UNSURE)
        qualified = [s for s in self.sources if len(names) > 1 and s.alias == names[0]]
        if qualified:
            found = _among(qualified, names[1])
            if found.answer is not Answer.NOTHING:
                return found
        # `a.b` may also be the field b of a column a.
        found = _among([s for s in self.sources if not s.hidden], names[0])
        if found.answer is Answer.AMBIGUOUS and (self.merges_all or names[0] in self.merged):
            return FoundColumn(answer=Answer.FOUND)
        if found.answer is Answer.NOTHING and aliases and names[0] in self.aliases:
            return FoundColumn(answer=Answer.FOUND)
        if found.answer is Answer.NOTHING and qualified:
            return FoundColumn(answer=Answer.NO_COLUMN, sources=tuple(qualified))
        if found.answer is Answer.NOTHING and any(s.hidden and _has(s, names[0]) for s in self.sources):
            return FoundColumn(answer=Answer.UNSURE)
        return found

    def source(self, alias: str) -> Source | None:
        """The one source of that alias, if it is sure."""
        found = [s for s in self.sources if s.alias == alias]
        return found[0] if len(found) == 1 and not self.blind else None


def _has(source: Source, name: str) -> bool:
    return source.columns is None or name in source.columns


def _among(sources: Sequence[Source], name: str) -> FoundColumn:
    having = [s for s in sources if s.columns is not None and name in s.columns]
    if len(having) > 1:
        return FoundColumn(answer=Answer.AMBIGUOUS, sources=tuple(having))
    if having:
        columns = having[0].columns
        assert columns is not None
        return FoundColumn(answer=Answer.FOUND, column=columns[name], sources=(having[0],))
    if any(s.columns is None for s in sources):
        return FoundColumn(answer=Answer.UNSURE)
    return FoundColumn(answer=Answer.NOTHING)


def columns_of(outputs: Outputs, names: Sequence[str] = ()) -> dict[str, Output] | None:
    """A query's result as the columns of a source, under other names where given."""
    if outputs is None:
        return {n.lower(): Output(name=n) for n in names} if names else None
    if names:
        if len(names) != len(outputs):
            return None
        outputs = tuple(Output(name=n, type=o.type) for n, o in zip(names, outputs, strict=True))
    found = {o.name.lower(): o for o in outputs if o.name is not None}
    # A column that Spark names, or a name that two columns have, leaves the rest to Spark.
    return found if len(found) == len(outputs) else None
