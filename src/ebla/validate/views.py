"""Phases 3 and 4 and the notes, for the views of a script in order: columns, keys, and how changes are followed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ebla.algebra.keys import view_key
from ebla.algebra.merge import Sketch, settled, sketch
from ebla.algebra.nodes import NotUnderstood, Shape
from ebla.algebra.plan import FullRefresh, plan
from ebla.algebra.shape import shape
from ebla.base.issue import Code, Issue, Severity, did_you_mean, has_errors
from ebla.model.relation import Kind, misnamed
from ebla.sql import chance
from ebla.sql.query import Query
from ebla.validate.columns import resolve
from ebla.validate.facts import USED_BY_EBLA, RelationFacts, ViewStep, is_reserved_column
from ebla.validate.scope import Output, Outputs
from ebla.values import types


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnalysis:
    """What Spark makes of a query: its columns in order with their types, and facts about its plan and session."""

    columns: tuple[tuple[str, str], ...]
    deterministic: bool = True
    generates: bool = False
    """The plan has a generator such as explode."""
    case_sensitive: bool = False
    """The session tells names apart by case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRefusal:
    """What Spark says against a query; `at` is a position in its text, `column` the number of an output column."""

    message: str
    at: int = 0
    code: Code = Code.SPARK
    column: int | None = None


class Analyser(Protocol):
    def analyse(self, query: Query, inputs: Mapping[str, Sequence[tuple[str, str]]]) -> QueryAnalysis | QueryRefusal:
        """Analyse a query over empty inputs with these columns (by name in lower case). Changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFacts:
    """What is known of a view that a script defines."""

    outputs: Outputs
    relation: RelationFacts
    """`columns` is `None` where only Spark could tell."""
    implied: tuple[str, ...] | None = None
    """The key that the query implies, empty for none; `None` where only Spark could tell."""
    shape: Shape | None = None
    blocked: str | None = None
    """Why changes cannot be followed at all, if they cannot."""
    drawn: Sketch | None = None
    """The query with hidden columns, if its groups can be merged; after Spark has seen it, with their types."""


@dataclass(slots=True, kw_only=True)
class Views:
    """The views of a script, gathered statement by statement."""

    steps: Sequence[ViewStep]
    facts: dict[int, ViewFacts] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    """Statements in which something is wrong: later phases leave them out."""

    def inputs(self, step: ViewStep) -> dict[str, RelationFacts]:
        """A view's inputs, with the columns that views of the same script turned out to have."""
        return {name: self.present(relation) for name, relation in step.inputs.items()}

    def present(self, relation: RelationFacts) -> RelationFacts:
        made = self.facts.get(relation.made_by) if relation.made_by is not None else None
        return (
            relation if made is None or relation.kind is not Kind.VIEW else replace(made.relation, name=relation.name)
        )

    # ---- phase 3 ----------------------------------------------------------------------------------------

    def resolve(self) -> list[Issue]:
        """All names and types in the queries that can be judged without Spark."""
        issues: list[Issue] = []
        for step in self.steps:
            query, inputs = step.create.query, self.inputs(step)
            outputs, findings = resolve(query.text, inputs)
            found = [step.query_issue(f.code, f.at, f.message, f.hint) for f in findings]
            for name, at in chance.calls(query.text):
                found.append(step.query_issue(Code.NOT_DETERMINISTIC, at, *chance.described(name)))
            self.facts[step.item.number] = _facts(step, inputs, QueryAnalysis(columns=()), outputs)
            # The key follows from columns that are right.
            found += _judge(step, self.facts[step.item.number], key=not has_errors(found))
            if has_errors(found):
                self.failed.add(step.item.number)
            issues += found
        return issues

    # ---- phase 4 ----------------------------------------------------------------------------------------

    def analyse(self, analyser: Analyser) -> list[Issue]:
        """What Spark says. A view over one that was refused is left out: its own mistakes are not known yet."""
        issues: list[Issue] = []
        refused = self.failed
        for step in self.steps:
            inputs = self.inputs(step)
            columns = _exact(inputs)
            number = step.item.number
            if (
                number in refused
                or columns is None
                or any(r.made_by in refused for r in inputs.values() if r.made_by is not None)
            ):
                refused.add(number)
                continue
            found = analyser.analyse(step.create.query, columns)
            before = self.facts[number].outputs
            if isinstance(found, QueryRefusal):
                at = _place(before, found.column) if found.column is not None else found.at
                hint = _HINTS.get(found.code, "")
                issues.append(step.query_issue(found.code, at, found.message, hint))
                refused.add(number)
                continue
            if not found.deterministic:
                message = (
                    "expected a deterministic query, found one of chance, the clock, the session or the order of rows"
                )
                issues.append(step.query_issue(Code.NOT_DETERMINISTIC, 0, message, _HINTS[Code.NOT_DETERMINISTIC]))
            outputs = tuple(
                Output(name=name, type=kind, at=_place(before, i)) for i, (name, kind) in enumerate(found.columns)
            )
            facts = _facts(step, inputs, found, outputs)
            self.facts[number] = replace(facts, drawn=_settled(facts.drawn, analyser, columns, facts.relation))
            judged = _judge(step, self.facts[number])
            if has_errors(judged) or not found.deterministic:
                refused.add(number)
            issues += judged
        return issues

    # ---- notes ------------------------------------------------------------------------------------------

    def notes(self) -> list[Issue]:
        """Which input's change recomputes a view, and why."""
        issues: list[Issue] = []
        for step in self.steps:
            facts, inputs = self.facts[step.item.number], self.inputs(step)
            if facts.implied is None or step.item.number in self.failed:
                continue
            must_follow = str(step.create.options.get("refresh", "")).lower() == "incremental"
            severity = Severity.ERROR if must_follow else Severity.NOTE
            hint = "leave out refresh = 'incremental' to allow it" if must_follow else "EXPLAIN shows how it is kept"
            for name, reason in recomputing(facts, inputs):
                ref = next(r for r in step.create.query.refs if r.name.lower() == name)
                expected = "expected that changes can be followed, found that " if must_follow else ""
                message = f"{expected}a change of {ref.name} needs a full refresh: {reason}"
                issues.append(step.query_issue(Code.FULL_REFRESH, ref.start, message, hint, severity))
        return issues


_HINTS = {
    Code.SPARK: "mend the query where Spark points",
    Code.UNSUPPORTED_TYPE: "convert the column with CAST",
    Code.NOT_DETERMINISTIC: "a view must be the same whenever it is computed",
}


def recomputing(facts: ViewFacts, inputs: Mapping[str, RelationFacts]) -> Iterable[tuple[str, str]]:
    """Inputs whose change needs a full refresh, with the reason."""
    keys = {n: r.shape_key() for n, r in inputs.items()}
    for name in inputs:
        if facts.shape is None:
            yield name, facts.blocked or "the query is not understood"
            continue
        found = plan(facts.shape, [name], keys, merges=facts.drawn is not None)
        if isinstance(found, FullRefresh):
            yield name, found.reason


def _exact(inputs: Mapping[str, RelationFacts]) -> dict[str, list[tuple[str, str]]] | None:
    found: dict[str, list[tuple[str, str]]] = {}
    for name, relation in inputs.items():
        columns = [(n, kind) for n, kind in (relation.columns or {}).items() if kind is not None]
        if relation.columns is None or len(columns) < len(relation.columns):
            return None
        found[name] = columns
    return found


def _place(outputs: Outputs, column: int) -> int:
    return outputs[column].at if outputs is not None and column < len(outputs) else 0


# ---- what follows from the columns ----------------------------------------------------------------------


def _facts(step: ViewStep, inputs: Mapping[str, RelationFacts], analysed: QueryAnalysis, outputs: Outputs) -> ViewFacts:
    columns = _columns(step, outputs)
    understood, blocked, implied = _followed(step, inputs, analysed, outputs)
    spelled = {n.lower(): n for n in columns or {}}
    key = [spelled.get(k.lower(), k) for k in step.create.primary_key or implied or ()]
    kinds = [(columns or {}).get(k) for k in key]
    # A column whose type cannot be ordered cannot be a key: the rows get a hidden one.
    if any(kind is not None and not types.is_key_type(kind) for kind in kinds):
        key = []
    relation = RelationFacts(
        name=step.create.name,
        kind=Kind.VIEW,
        columns=columns,
        key=tuple(key),
        reads=frozenset(inputs),
        made_by=step.item.number,
    )
    drawn = None
    if understood is not None and outputs is not None and all(o.name is not None for o in outputs):
        drawn = sketch(step.create.query, understood, [str(o.name) for o in outputs])
    return ViewFacts(
        outputs=outputs, relation=relation, implied=implied, shape=understood, blocked=blocked, drawn=drawn
    )


def _settled(
    drawn: Sketch | None,
    analyser: Analyser,
    columns: Mapping[str, Sequence[tuple[str, str]]],
    view: RelationFacts,
) -> Sketch | None:
    """The sketch with the types of all its columns and the view's own names, if groups can be merged exactly."""
    found = None if drawn is None else analyser.analyse(drawn.query, columns)
    if drawn is None or not isinstance(found, QueryAnalysis) or len(found.columns) != len(drawn.roles):
        return None
    roles = settled(drawn.roles, [kind for _, kind in found.columns])
    if roles is None:
        return None
    names = list(view.columns or {})
    named = [replace(role, column=name) for role, name in zip(roles, names, strict=False)]
    return Sketch(query=drawn.query, roles=(*named, *roles[len(named) :]))


def _columns(step: ViewStep, outputs: Outputs) -> dict[str, str | None] | None:
    """The view's columns, under the names that the statement gives; `None` if they are not all known."""
    names = step.create.columns
    if outputs is None:
        return dict.fromkeys(names) if names else None
    named = [(names[i] if i < len(names) else o.name, o.type) for i, o in enumerate(outputs)]
    found = {n: kind for n, kind in named if n is not None}
    return found if len({n.lower() for n in found}) == len(named) else None


def _followed(
    step: ViewStep, inputs: Mapping[str, RelationFacts], analysed: QueryAnalysis, outputs: Outputs
) -> tuple[Shape | None, str | None, tuple[str, ...] | None]:
    """The query's tree or why there is none, and the key that it implies; nothing at all where types are unknown."""
    kinds = {n: r.shape_types() for n, r in inputs.items()}
    typed = {n: kind for n, kind in kinds.items() if kind is not None}
    if len(typed) < len(kinds) or outputs is None:
        return None, None, None
    try:
        tree = tree_of(step.create.query, typed, case_sensitive=analysed.case_sensitive)
        if len(tree.outputs) != len(outputs):
            raise NotUnderstood("the query's columns")
    except NotUnderstood as reason:
        return None, str(reason), ()
    if analysed.generates:
        return tree, None, ()  # several rows of one: no column of an input names them
    places = [n for n, _ in tree.outputs]
    names = step.create.columns
    implied = []
    for name in view_key(tree, {n: r.shape_key() for n, r in inputs.items()}):
        at = places.index(name)
        implied.append(names[at] if at < len(names) else outputs[at].name or name)
    return tree, None, tuple(implied)


def _judge(step: ViewStep, facts: ViewFacts, *, key: bool = True) -> list[Issue]:
    """The list of columns, names given twice, and the declared key."""
    made, outputs = step.create, facts.outputs
    issues: list[Issue] = []
    if outputs is None:
        return issues
    if made.columns and len(made.columns) != len(outputs):
        message = f"expected {len(outputs)} column names, found {len(made.columns)}"
        at = step.item.place_of(made.columns[0])
        issues.append(step.item.issue(Code.COLUMN_COUNT, at, message, "name every column of the query, or none"))
        return issues
    names: list[str | None] = [*made.columns] or [o.name for o in outputs]
    seen: set[str] = set()
    for name, output in zip(names, outputs, strict=True):
        if name is not None and is_reserved_column(name):
            message = f"column {name!r}: {misnamed(name) or USED_BY_EBLA}"
            issues.append(step.query_issue(Code.RESERVED_NAME, output.at, message, "give it another alias"))
        elif name is not None and name.lower() in seen:
            message = f"expected each output column once, found {name} twice"
            hint = _another_name(step.create.query.text, output.at, name, seen)
            issues.append(step.query_issue(Code.DUPLICATE_COLUMN, output.at, message, hint))
        seen.add((name or "").lower())
    return issues if issues or not key else _judge_key(step, facts, names)


def _another_name(text: str, at: int, name: str, seen: Collection[str]) -> str:
    """What to write in the place of an output column whose name another one has."""
    if text[at : at + 1] == "*":
        return f"list the columns in the place of *, and give one {name} an alias"
    source = re.search(r"(\w+)\s*\.\s*$", text[:at])
    word = re.sub(r"\W+", "_", name).strip("_") or "column"
    numbered = (f"{word}_{number}" for number in itertools.count(2))
    free = next(
        n for n in itertools.chain([f"{source[1]}_{word}"] if source else [], numbered) if n.lower() not in seen
    )
    return f"give it another alias, as in {f'{source[1]}.{name} ' if source else ''}AS {free}"


def _judge_key(step: ViewStep, facts: ViewFacts, names: Sequence[str | None]) -> list[Issue]:
    made = step.create
    visible = [n for n in names if n is not None]
    issues: list[Issue] = []
    for name in made.primary_key:
        if len(visible) == len(names) and name.lower() not in (n.lower() for n in visible):
            at = _key_place(step, name)
            message = f"PRIMARY KEY: expected columns of the view, found {name}"
            issues.append(
                step.item.issue(Code.UNKNOWN_KEY_COLUMN, at, message, did_you_mean(name, visible, "its columns"))
            )
    if issues or not made.primary_key or facts.implied is None:
        return issues
    declared = {k.lower() for k in made.primary_key}
    if facts.implied and {k.lower() for k in facts.implied} <= declared:
        return issues
    have = f"({', '.join(facts.implied)})" if facts.implied else "none"
    key = ", ".join(made.primary_key)
    message = f"PRIMARY KEY ({key}): expected a key that the query implies, found that it implies {have}"
    hint = f"declare PRIMARY KEY {have}" if facts.implied else "leave out PRIMARY KEY, or show the keys of the inputs"
    issues.append(step.item.issue(Code.KEY_NOT_IMPLIED, _key_place(step, made.primary_key[0]), message, hint))
    return issues


def _key_place(step: ViewStep, name: str) -> int:
    """Where the declared key names a column: behind PRIMARY KEY and before the query."""
    text = step.item.source.text[: step.create.query_at]
    begin = text.upper().rfind("PRIMARY")
    found = text.lower().find(name.lower(), begin + len("PRIMARY KEY"))
    return max(found, 0)


def tree_of(query: Query, inputs: Mapping[str, Mapping[str, str]], *, case_sensitive: bool = False) -> Shape:
    """The tree of a query, or `NotUnderstood`. sqlglot stumbles over trees that it built from text that is no query."""
    try:
        return shape(query, inputs, case_sensitive=case_sensitive)
    except NotUnderstood:
        raise
    except Exception as error:
        raise NotUnderstood("the query could not be analysed") from error
