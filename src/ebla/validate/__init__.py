"""What is wrong with statements, before they run: all issues at once, each with its place and what to do."""

from ebla.base.issue import Code, Issue, Severity, has_errors, ordered, render, strict
from ebla.validate.facts import Part, RelationFacts, Warehouse
from ebla.validate.refuse import refuse, require_handler
from ebla.validate.run import Report, parts_report, script_issues, script_report, statement_issues
from ebla.validate.views import Analysed, Analyser, Refused

__all__ = [
    "Analysed",
    "Analyser",
    "Code",
    "Issue",
    "Part",
    "Refused",
    "RelationFacts",
    "Report",
    "Severity",
    "Warehouse",
    "has_errors",
    "ordered",
    "parts_report",
    "refuse",
    "render",
    "require_handler",
    "script_issues",
    "script_report",
    "statement_issues",
    "strict",
]
