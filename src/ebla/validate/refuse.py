"""Issues of a statement that is about to run, as one exception."""

from __future__ import annotations

from collections.abc import Sequence

from ebla.base.issue import Issue, Severity, as_error, render
from ebla.sql.lex import StatementText
from ebla.sql.statements import CreateHandler
from ebla.validate.facts import ScriptItem, Warehouse
from ebla.validate.phases import statement_issues


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
