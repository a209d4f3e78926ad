"""`EXPLAIN MATERIALIZED VIEW`: how an existing view is maintained, or one that a statement would create."""

from __future__ import annotations

import json

import pyarrow as pa

from ebla.algebra import explain
from ebla.catalog import reads
from ebla.relations import views as definition
from ebla.relations.cut import cut_of
from ebla.relations.readers import readers
from ebla.relations.shapes import build_method
from ebla.relations.views import inputs_of
from ebla.spark.result import Result
from ebla.sql import statements as st
from ebla.tables.read_access import ReadAccess
from ebla.views import analysis


def explain_view(context: ReadAccess, statement: st.ExplainView) -> Result:
    dictionaries = state = None
    if statement.create is not None:
        made = statement.create
        query = made.query
        checked = analysis.analyze_view(context, query, names=made.columns, primary_key=made.primary_key)
        how = checked.build_method(inputs_of(query))
    else:
        with context.catalog.reading() as connection:
            view = definition.load(connection, statement.name)
            relations = {n: reads.relation(connection, n) for n in view.inputs}
            batch = next((sorted(names) for v, _, names in readers(connection) if v.relation == view.relation), [])
        how, state = build_method(view, relations), view.state
        if batch:
            dictionaries = explain.Dictionaries(names=tuple(batch), cut=cut_of(view, relations, batch))
        checked = analysis.analyze_view(context, view.query)
    name, plans, direct = statement.name, checked.plans(), checked.direct
    text = explain.as_text(name, plans, how, direct=direct, dictionaries=dictionaries, state=state)
    value = explain.as_json(name, plans, how, direct=direct, dictionaries=dictionaries, state=state)
    drawn = explain.as_mermaid(name, plans)
    return Result(table=pa.table({"plan": [text], "json": [json.dumps(value)], "mermaid": [drawn]}))
