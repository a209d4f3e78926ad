"""Which row of an input makes a view's expression fail: found by halving, on the rows that the epoch has at hand."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ebla.errors import SqlError, TypeMismatchError
from ebla.views.definition import View
from ebla.views.evaluate import Evaluation
from ebla.views.inputs import Inputs


def culprit(view: View, inputs: Inputs, evaluation: Evaluation, leaves: Mapping[int, pa.Table]) -> str | None:
    """The key of one row of an input that changed, without which the failure would not be; `None` if none is."""
    for number, rows in leaves.items():
        table = view.kept.refs[number].name.lower()
        if rows.num_rows == 0 or inputs.changed(table).num_rows == 0:
            continue

        def fails(some: pa.Table, number: int = number) -> bool:
            try:
                evaluation.frame({**leaves, number: some}, small=True).toArrow()
            except (SqlError, TypeMismatchError):
                return True
            except Exception:  # Spark's own words for a failure at run time
                return True
            return False

        if fails(rows.slice(0, 0)):
            continue  # it fails without them, too
        while rows.num_rows > 1:
            half = rows.num_rows // 2
            first, second = rows.slice(0, half), rows.slice(half)
            if fails(first):
                rows = first
            elif fails(second):
                rows = second
            else:
                return None
        relation = inputs.relations[table]
        key = [k.name for k in relation.key if not k.hidden] or rows.schema.names[:3]
        shown = ", ".join(f"{name} = {rows[name][0].as_py()}" for name in key if name in rows.schema.names)
        return f"{relation.name} ({shown})"
    return None
