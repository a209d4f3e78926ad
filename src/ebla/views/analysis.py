"""Whether a query can be a view: its columns and key, and how its changes are followed. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ebla.algebra.direct_query import direct_of_relations
from ebla.catalog import reads
from ebla.model.relation import HIDDEN_KEY
from ebla.spark.session import view_settings
from ebla.sql.parse import statement_of
from ebla.sql.query import Query
from ebla.sql.statements import ExplainView
from ebla.tables import new_table
from ebla.tables.read_access import ReadAccess
from ebla.validate import ScriptItem, items_report, refuse, warehouse
from ebla.validate.spark import SparkAnalyser
from ebla.views.view_analysis import ViewAnalysis, columns_of


def analyze_view(
    context: ReadAccess,
    query: Query,
    *,
    names: Sequence[str] = (),
    primary_key: Sequence[str] = (),
) -> ViewAnalysis:
    """Analyse a view's query with Spark and follow its values. Changes nothing.

    Everything that is wrong with it is one error, which carries all issues.
    """
    source, made = statement_of(query)
    made = replace(made, columns=tuple(names), primary_key=tuple(primary_key))
    # Nothing is created, so the name may be that of an existing view.
    return analyze_item(context, ScriptItem(source=source, statement=ExplainView(name=made.name, create=made)), query)


def analyze_item(context: ReadAccess, item: ScriptItem, query: Query) -> ViewAnalysis:
    names = list(dict.fromkeys(ref.name.lower() for ref in query.refs))
    with context.catalog.reading() as connection:
        warehouse_facts = warehouse.read(connection, names)
        found = {n: reads.find_relation(connection, n) for n in names}
    settings = view_settings(context.spark)
    report = items_report([item], warehouse_facts, SparkAnalyser(lambda: context.view_session(settings, small=False)))
    refuse(item.source, report.issues)
    facts = report.views[item.number]
    relations = {n: r for n, r in found.items() if r is not None}
    columns = columns_of(facts.relation, facts.drawn)
    for column in columns:
        new_table.check_fields(facts.relation.name or "the query", column)
    kept = query if facts.drawn is None else facts.drawn.query
    made = direct_of_relations(kept, relations, [col for col in columns if col.name not in HIDDEN_KEY], settings)
    return ViewAnalysis(
        relations=relations,
        columns=columns,
        shape=facts.shape,
        blocked=facts.blocked,
        drawn=facts.drawn,
        settings=settings,
        direct=made is not None and context.settings.driver_rows_max > 0,
    )
