"""What is wrong with statements, before they run: all issues at once, each with its place and what to do."""

from ebla.base.issue import Code, Issue, Severity, has_errors, ordered, render, strict
from ebla.validate.facts import RelationFacts, ScriptItem, Warehouse
from ebla.validate.phases import (
    Report,
    items_report,
    refuse,
    require_handler,
    script_issues,
    script_report,
    statement_issues,
)
from ebla.validate.views import Analyser, QueryAnalysis, QueryRefusal

__all__ = [
    "Analyser",
    "Code",
    "Issue",
    "QueryAnalysis",
    "QueryRefusal",
    "RelationFacts",
    "Report",
    "ScriptItem",
    "Severity",
    "Warehouse",
    "has_errors",
    "items_report",
    "ordered",
    "refuse",
    "render",
    "require_handler",
    "script_issues",
    "script_report",
    "statement_issues",
    "strict",
]
