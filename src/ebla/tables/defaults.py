"""`DEFAULT` of a column, declared: a literal by the driver, any other constant by Spark, exactly or not at all."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import functions as F

from ebla.errors import EblaError, TypeMismatchError, UsageError
from ebla.model.relation import Default, Relation
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.spark.sessions import Sessions
from ebla.sql import chance
from ebla.sql import literals as lit
from ebla.tables.literals import dialect_of
from ebla.values import defaults, types
from ebla.values.grammar import Unfit, parse

_UNFIT = (Unfit, ValueError, TypeError, OverflowError)


def sql_by_name(relation: Relation) -> dict[str, str]:
    """Columns that have a default, with an expression of Spark's that is its value."""
    return {c.name: lit.default_sql(c.default, c.type) for c in relation.visible if c.default is not None}


def declared(sessions: Sessions, column: str, kind: str, text: str) -> Default:
    """The value of a constant, in a column's type; `column` is its name for messages."""
    tree, where = parse(kind), f"{column}: DEFAULT"
    dialect = dialect_of(sessions, {})
    try:
        value = lit.stored(lit.whole(text, dialect), tree, dialect.zone)
        return defaults.of_array(text, pa.array([value], types.to_arrow(kind)), tree)
    except lit.NotPlain:
        pass
    except _UNFIT as why:
        raise TypeMismatchError(f"{where}: expected {tree}, found {text} ({why})") from None
    if not types.is_key_type(kind):
        raise UsageError(f"{where}: expected NULL for a column of type {tree}, found {text}")
    return _computed(sessions, where, kind, text)


def _computed(sessions: Sessions, where: str, kind: str, text: str) -> Default:
    """The same by Spark, in the user's session. One job over no data."""
    changing = next((name for name, _ in chance.calls(text)), None)
    found: pa.Table | None = None
    try:
        with swrite.translated(where):
            frame = sessions.spark.sql(f"SELECT ({text}) AS d")
            plan = frame._jdf.queryExecution().analyzed()
            patterns = ssession.tree_patterns(sessions.spark)
            constant = plan.deterministic() and not plan.containsPattern(patterns.CURRENT_LIKE())
            constant = constant and not plan.containsPattern(patterns.PLAN_EXPRESSION())
            if constant and changing is None:
                value = swrite.assigned(F.col("d"), frame.schema[0].dataType, types.to_spark(kind), where)
                found = frame.select(value.alias("d")).toArrow()
    except EblaError as error:
        if "UNRESOLVED_COLUMN" not in str(error) and "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
    if found is None or found.num_rows != 1:
        raise UsageError(f"{where}: expected a constant, found {text}; give such a value in each row instead")
    return defaults.of_array(text, found[0].cast(types.to_arrow(kind)).combine_chunks(), parse(kind))
