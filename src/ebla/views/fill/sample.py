"""A sample of a view compared with its query, before queries may read it.

Keys of the base are taken from the middle of some of its runs, and from some runs of the view itself, so that both a
missing row and one too many can be found. The query is run on these keys alone, by the means of an epoch: a few lookups
and one small Spark job. For a view that grew, the keys are those that an epoch would compute again if these rows of the
base had changed, its groups for one. A view that one commit has filled is counted instead: its runs must hold what was
computed.
"""

from __future__ import annotations

from ebla.algebra.build_method import DrivenBuild, GrowingBuild, OnePieceBuild
from ebla.algebra.plan import by_scope, of_scope
from ebla.algebra.shape import keys_of
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.relations import views as definition
from ebla.relations.shapes import build_method, shape_of, used_columns
from ebla.tables.read_access import ReadAccess
from ebla.views.epoch.inputs import unchanged
from ebla.views.epoch.whole_epoch import FIRST_BUILD
from ebla.views.fill.sample_comparison import compare, count
from ebla.views.fill.sample_keys import driven_keys, grown_keys


def compare_sample(context: ReadAccess, name: str) -> None:
    """Raise if a sample of a view that is not readable yet differs from its query, at the version it has reached."""
    with context.catalog.reading() as connection:
        view = definition.load(connection, name)
        relations = {n: reads.relation(connection, n) for n in view.inputs}
        mine = reads.snapshot(connection, view.relation)
        position = view.reached
        assert position is not None, "a view that is level has been reached by an epoch"
        how = build_method(view, relations)
        if isinstance(how, OnePieceBuild) or (
            isinstance(how, GrowingBuild) and position.epoch.get("reason") == FIRST_BUILD
        ):
            count(view, position, mine)
            return
        now = {n: reads.snapshot(connection, r, Version(position.read[n])) for n, r in relations.items()}
    shape, _ = shape_of(view, relations)
    assert shape is not None, "a view that is built in chunks is understood"
    inputs = unchanged(context, relations, now, used_columns(shape, relations), view.settings)
    if isinstance(how, DrivenBuild):
        plan = of_scope(shape, (), how.scope)
        assert plan is not None, "nothing changed, so there is nothing to follow"
        compare(view, plan, driven_keys(view, how.scope, how.base, inputs, mine), inputs, mine)
        return
    grown = by_scope(shape, [how.base], keys_of(relations))
    if grown is not None and not grown.whole:
        compare(view, grown, grown_keys(view, grown, how.base, inputs, mine), inputs, mine)
