"""The phases in order. Each one sees only statements that the phases before it found no error in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ebla.base.issue import Issue, Severity, as_error, ordered, render
from ebla.sql.lex import StatementText
from ebla.sql.statements import CreateHandler
from ebla.validate import names, queries, syntax
from ebla.validate.facts import ScriptItem, Warehouse
from ebla.validate.views import Analyser, ViewFacts, Views


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All issues by place, and what was found out about each view, by the number of its statement."""

    issues: tuple[Issue, ...]
    views: Mapping[int, ViewFacts] = field(default_factory=dict)


def script_issues(text: str, warehouse: Warehouse, analyser: Analyser | None = None) -> tuple[Issue, ...]:
    """Everything that is wrong with a script, or worth knowing, sorted by place. Changes nothing.

    Statements are followed in order, as if each had worked: a view may read what an earlier statement creates. Phases
    are syntax, names and structure, columns, analysis by Spark, notes. A statement with an error in one phase is left
    out of the later ones, which would only repeat it in other words; the others go on. Without an analyser nothing
    needs Spark, and what only Spark can tell is left out. Never raises for what the text says.
    """
    return script_report(text, warehouse, analyser).issues


def script_report(text: str, warehouse: Warehouse, analyser: Analyser | None = None) -> Report:
    """A statement that does not parse is left out; what it would have created is taken to be there."""
    items, issues, lost = syntax.script_items(text)
    made = {name.lower(): relation for name, relation in lost.items() if name.lower() not in warehouse.relations}
    report = items_report(items, replace(warehouse, relations={**warehouse.relations, **made}), analyser)
    return replace(report, issues=ordered([*issues, *report.issues]))


def statement_issues(item: ScriptItem, warehouse: Warehouse, analyser: Analyser | None = None) -> tuple[Issue, ...]:
    """The same for one statement that is parsed already, such as a CREATE HANDLER about to run.

    `warehouse` is as the statement finds it; `Part(source=…, statement=…)` carries the text and its place in the
    script, so that issues point there. Use `refuse` to raise them as one error.
    """
    return items_report([item], warehouse, analyser).issues


def items_report(items: Sequence[ScriptItem], warehouse: Warehouse, analyser: Analyser | None = None) -> Report:
    """Phases 2 and later, each for the statements in which those before it found no error."""
    followed = names.follow(items, warehouse)
    views = Views(steps=followed.views)
    issues = followed.issues + views.resolve()
    issues += queries.issues(followed.queries, views.present)
    if analyser is not None:
        issues += views.analyse(analyser)
    issues += views.notes()
    return Report(issues=ordered(issues), views=views.facts)


def refuse(source: StatementText, issues: Sequence[Issue]) -> None:
    """Raise one error that carries all issues of a statement, if one of them is an error.

    Its class is that of the first error (`UnknownNameError`, `DuplicateNameError`, …), its message lists the errors and
    warnings with their places, and `.issues` holds every issue.
    """
    if any(i.severity is Severity.ERROR for i in issues):
        reported = [i for i in issues if i.severity is not Severity.NOTE]
        raise as_error(issues, render(reported, source.text, line=source.line, column=source.column))


def require_handler(made: CreateHandler, warehouse: Warehouse) -> tuple[Issue, ...]:
    """Refuse a CREATE HANDLER that is wrong; returns its warnings, such as an input that no view reads.

    `warehouse` needs the names of all relations, what its views read (`RelationFacts.reads`), and all handlers.
    """
    source = made.source or StatementText(text=made.name)
    issues = statement_issues(ScriptItem(source=source, statement=made), warehouse)
    refuse(source, issues)
    return issues
