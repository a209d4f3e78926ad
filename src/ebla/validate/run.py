"""The phases in order. Each one sees only statements that the phases before it found no error in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ebla.validate import names, syntax
from ebla.validate.issue import Issue, has_errors, ordered
from ebla.validate.known import Known, Part
from ebla.validate.views import Analyser, ViewFacts, Views


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All issues by place, and what was found out about each view, by the number of its statement."""

    issues: tuple[Issue, ...]
    views: Mapping[int, ViewFacts] = field(default_factory=dict)


def script_issues(text: str, known: Known, analyser: Analyser | None = None) -> tuple[Issue, ...]:
    """Everything that is wrong with a script, or worth knowing, sorted by place. Changes nothing.

    Statements are followed in order, as if each had worked: a view may read what an earlier statement creates. Phases
    are syntax, names and structure, columns, analysis by Spark, notes; after a phase with errors the later ones do not
    run, as they would only repeat its errors in other words. Without an analyser nothing needs Spark, and what only
    Spark can tell is not told. Never raises for what the text says.
    """
    return script_report(text, known, analyser).issues


def script_report(text: str, known: Known, analyser: Analyser | None = None) -> Report:
    parts, issues = syntax.parts(text)
    if issues:
        return Report(issues=ordered(issues))
    return parts_report(parts, known, analyser)


def statement_issues(part: Part, known: Known, analyser: Analyser | None = None) -> tuple[Issue, ...]:
    """The same for one statement that is parsed already, such as a CREATE HANDLER about to run.

    `known` is the warehouse as the statement finds it; `Part(source=…, statement=…)` carries the text and its place in
    the script, so that issues point there. Use `ebla.validate.refuse` to raise them as one error.
    """
    return parts_report([part], known, analyser).issues


def parts_report(parts: Sequence[Part], known: Known, analyser: Analyser | None = None) -> Report:
    """Phases 2 and later."""
    steps, issues = names.check(parts, known)
    if has_errors(issues):
        return Report(issues=ordered(issues))
    views = Views(steps=steps)
    issues += views.resolve()
    if not has_errors(issues) and analyser is not None:
        issues += views.analyse(analyser)
    if not has_errors(issues):
        issues += views.notes()
    return Report(issues=ordered(issues), views=views.facts)
