"""How a view is maintained, for people, for programs, and as a picture: the plans that epochs execute.

The steps have the glossary's names: *transform* takes affected values from the change itself, *grab* looks them up in
another input, *sync* computes and writes rows. Values and rows that steps found are broadcast to Spark's tasks; an
input that is read by values is pruned to the row groups that can hold them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from ebla.algebra.build_method import BuildMethod, DrivenBuild, GrowingBuild, OnePieceBuild
from ebla.algebra.follow import (
    ChangedValues,
    LookupValues,
    NarrowedLeaf,
    PickedValues,
    Scope,
    Values,
    ValueUnion,
    WithoutNull,
)
from ebla.algebra.plan import (
    AffectedValues,
    Difference,
    EpochPlan,
    FirstRows,
    FullRefresh,
    IncrementalPlan,
    Merge,
    TailPlan,
    Term,
)
from ebla.model.lifecycle.view import LIFE, RIGHTS, ViewState
from ebla.model.plans import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`kind` is transform, grab, read, compare, sync or full refresh; `phase` says what for: to find the affected
    values, to fetch the rows that they are made of, or to write."""

    kind: str
    text: str
    phase: str = "sync"
    input: str | None = None
    columns: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    pruned: bool = False
    broadcast: bool = False

    def value(self) -> dict[str, object]:
        found: dict[str, object] = {"step": self.kind, "phase": self.phase, "text": self.text}
        if self.input is not None:
            found["input"] = self.input
        found |= {name: list(v) for name, v in (("columns", self.columns), ("by", self.by)) if v}
        return found | {"pruned": self.pruned, "broadcast": self.broadcast}


def steps(made: EpochPlan) -> list[Step]:
    match made:
        case FullRefresh(reason=reason, unless=unless):
            if unless is None:
                return [Step(kind="full refresh", text=reason)]
            compared = [Step(kind="compare", phase="find", text=_compared(one.query.text)) for one in unless.subqueries]
            followed = [] if unless.rows is None else steps(unless.rows)
            return [
                *compared,
                *followed,
                Step(kind="full refresh", text=f"if a subquery gives something else: {reason}"),
            ]
        case IncrementalPlan(scope=scope, affected=affected, narrowed=narrowed, whole=whole):
            sync = f"recompute rows whose ({', '.join(scope)}) is affected, and write the difference"
            return [*_collecting(affected), *_reading(narrowed, whole), Step(kind="sync", text=sync, columns=scope)]
        case Difference(terms=terms):
            how = "compute these rows before and after the change, and write the difference"
            return [*_terms(terms), Step(kind="sync", text=how)]
        case Merge(terms=terms):
            how = "aggregate these rows before and after the change; subtract, add, and write the groups that differ"
            return [*_terms(terms), Step(kind="sync", text=how)]
        case TailPlan():
            return _tail(made)
        case FirstRows(rows=rows, first=first):
            *before, _ = steps(rows)
            among = f"put these rows among the first {first.end} and the reserve beyond, and write the difference"
            return [*before, Step(kind="sync", text=among)]


def _tail(made: TailPlan) -> list[Step]:
    first, onward = f"the first affected {made.course}", made.onward
    start = first if not made.ahead else f"{_rows(made.ahead)} before {first}"
    if onward is None:
        sync = f"compute all rows, compare those from {start} on, and write the difference"
        step = Step(kind="sync", text=sync, columns=made.scope)
        return [*_collecting(made.affected), *_reading((), made.whole), step]
    back = made.ahead + onward.before
    read = (
        f"the view's own rows from {_rows(back)} before {first} on" if back else f"the view's own rows from {first} on"
    )
    carried = ", ".join(one.column for one in onward.running)
    read += f", and those right before them for ({carried})" if carried else ""
    sync = f"compute rows from {start} on"
    sync += f", let ({carried}) go on from the row before" if carried else ""
    return [
        *_collecting(made.affected),
        Step(kind="read", phase="fetch", text=read, by=made.scope, pruned=True),
        *_reading(onward.narrowed, onward.whole),
        Step(kind="sync", text=f"{sync}, and write the difference", columns=made.scope),
    ]


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _compared(text: str) -> str:
    return f"what ({' '.join(text.split())}) gives before and after the change"


def _terms(terms: Sequence[Term]) -> list[Step]:
    found: list[Step] = []
    for term in terms:
        found += [*_collecting(term.affected), *_reading(term.narrowed, term.whole)]
    return found


def _collecting(affected: Sequence[AffectedValues]) -> list[Step]:
    return [step for one in affected for step in _way(one.values, "find")]


def _reading(narrowed: Sequence[NarrowedLeaf], whole: Sequence[str]) -> list[Step]:
    found: list[Step] = []
    for one in narrowed:
        found += _way(one.source, "fetch")
        by = tuple(map(str, one.by))
        text = f"{one.table} by ({', '.join(by)})"
        pruned = not one.is_scan
        step = Step(kind="read", phase="fetch", text=text, input=one.table, by=by, pruned=pruned, broadcast=True)
        found.append(step)
    found += [Step(kind="read", phase="fetch", text=f"{table} whole", input=table) for table in whole]
    return found


def _way(values: Values, phase: str) -> list[Step]:
    """What is done to have these values, first step first."""
    match values:
        case ChangedValues(table=table, columns=columns):
            names = tuple(map(str, columns))
            text = f"({', '.join(names)}) of the changed rows of {table}, old and new"
            return [Step(kind="transform", phase=phase, text=text, input=table, columns=names, broadcast=True)]
        case LookupValues(table=table, by=by, columns=columns, source=source):
            names, keys = tuple(map(str, columns)), tuple(map(str, by))
            text = f"({', '.join(names)}) of {table} by ({', '.join(keys)})"
            stored = all(isinstance(column, str) for column in by)
            step = Step(
                kind="grab", phase=phase, text=text, input=table, columns=names, by=keys, pruned=stored, broadcast=True
            )
            return [*_way(source, phase), step]
        case PickedValues(source=source) | WithoutNull(source=source):
            return _way(source, phase)
        case ValueUnion(sources=sources):
            return [step for source in sources for step in _way(source, phase)]
        case Scope():
            return []


def name_of(made: EpochPlan) -> Plan:
    return Plan.FULL_REFRESH if isinstance(made, FullRefresh) else Plan.INCREMENTAL


def built(how: BuildMethod) -> str:
    """How the view is built, in words."""
    match how:
        case DrivenBuild(base=base, scope=scope):
            return f"in chunks of {base}, by ({', '.join(scope)})"
        case GrowingBuild(base=base, reason=reason):
            return f"in chunks of {base}, each an epoch: {reason}"
        case OnePieceBuild(reason=reason):
            return f"in one chunk: {reason}"
        case _:
            assert_never(how)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionaries:
    """The inputs that a view's handler reads as BATCH, and how a change of them is taken in."""

    names: tuple[str, ...]
    cut: tuple[str, ...] | str
    """By chunks of these columns, or why in one chunk."""

    def text(self) -> str:
        how = f"one chunk: {self.cut}" if isinstance(self.cut, str) else f"chunks of ({', '.join(self.cut)})"
        return f"{', '.join(self.names)}; a change is taken in by {how}"

    def value(self) -> dict[str, object]:
        chunks = {"reason": self.cut} if isinstance(self.cut, str) else {"by": list(self.cut)}
        return {"inputs": list(self.names), "chunks": not isinstance(self.cut, str), **chunks}


def as_text(
    name: str,
    plans: Mapping[str, EpochPlan],
    how: BuildMethod,
    *,
    direct: bool,
    dictionaries: Dictionaries | None = None,
    state: ViewState | None = None,
) -> str:
    """`direct`: what few rows make of the view is computed without Spark. `state`: of a view that is there."""
    lines = [f"view {name}", f"  build: {built(how)}"]
    if dictionaries is not None:
        lines.append(f"  dictionaries: {dictionaries.text()}")
    if any(not isinstance(made, FullRefresh) for made in plans.values()):
        lines.append(f"  few rows: computed {'on the driver, without Spark' if direct else 'by one Spark job'}")
    for table, made in sorted(plans.items()):
        lines.append(f"  change of {table}: {name_of(made)}")
        for number, step in enumerate(steps(made), 1):
            marks = [word for word, is_so in (("pruned", step.pruned), ("broadcast", step.broadcast)) if is_so]
            lines.append(f"    {number}. {step.kind}: {step.text}" + (f" [{', '.join(marks)}]" if marks else ""))
    if state is not None:
        lines.append(f"  state: {state}; epochs {RIGHTS[state].epochs}")
        lines += [f"    {way}" for way in LIFE.ways(state)]
    return "\n".join(lines)


def as_json(
    name: str,
    plans: Mapping[str, EpochPlan],
    how: BuildMethod,
    *,
    direct: bool,
    dictionaries: Dictionaries | None = None,
    state: ViewState | None = None,
) -> dict[str, object]:
    inputs = {table: _value(made) for table, made in sorted(plans.items())}
    build: dict[str, object] = {"base": how.base, "chunks": not isinstance(how, OnePieceBuild)}
    build |= {"by": list(how.scope)} if isinstance(how, DrivenBuild) else {"reason": how.reason}
    found: dict[str, object] = {"view": name, "build": build, "few_rows": "driver" if direct else "spark"}
    if dictionaries is not None:
        found["dictionaries"] = dictionaries.value()
    if state is not None:
        found["state"] = LIFE.value(state)
    return found | {"inputs": inputs}


_WAYS = {
    IncrementalPlan: "scope",
    Difference: "difference",
    Merge: "merge",
    FirstRows: "first rows",
    TailPlan: "from a position on",
}


def _value(made: EpochPlan) -> dict[str, object]:
    found: dict[str, object] = {"plan": name_of(made)}
    if isinstance(made, FullRefresh):
        spared = {} if made.unless is None else {"steps": [step.value() for step in steps(made)]}
        return found | {"reason": made.reason, **spared}
    return found | {"way": _WAYS[type(made)], "steps": [step.value() for step in steps(made)]}


def as_mermaid(name: str, plans: Mapping[str, EpochPlan]) -> str:
    lines = ["flowchart LR"]
    for number, (table, made) in enumerate(sorted(plans.items())):
        previous = f"in{number}"
        lines.append(f'    {previous}["change of {table}"]')
        for i, step in enumerate(steps(made)):
            here = f"s{number}_{i}"
            lines.append(f'    {previous} --> {here}["{step.kind}: {step.text}"]')
            previous = here
        lines.append(f"    {previous} --> view[({name})]")
    return "\n".join(lines)
