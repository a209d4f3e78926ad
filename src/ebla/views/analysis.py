"""Whether a query can be a view: its columns and key, and how its changes are followed. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ebla.algebra.direct import direct_of_relations
from ebla.algebra.driving import HowBuilt, driving
from ebla.algebra.merge import Sketch
from ebla.algebra.nodes import Shape
from ebla.algebra.plan import EpochPlan, FullRefresh, plan
from ebla.algebra.shape import keys_of
from ebla.catalog import reads
from ebla.model.relation import HIDDEN_KEY, Column, Relation
from ebla.spark.session import view_settings
from ebla.sql.lex import StatementText
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.sql.statements import CreateView, ExplainView
from ebla.tables import ddl
from ebla.tables.context import Context
from ebla.validate import KnownRelation, Part, parts_report, refuse, warehouse
from ebla.validate.spark import SparkAnalyser


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A query that can be a view: its inputs, its columns, and how it is maintained."""

    relations: Mapping[str, Relation]
    columns: tuple[Column, ...]
    shape: Shape | None
    blocked: str | None
    """Why the query's changes cannot be followed at all, if they cannot."""
    drawn: Sketch | None
    """The query with hidden columns, if its groups can be merged."""
    settings: Mapping[str, str]
    direct: bool = False
    """Whether small epochs compute it on the driver, without Spark."""

    def how_built(self, names: Sequence[str]) -> HowBuilt:
        """Whether the view is built in chunks; `names` are its inputs in the order of the text."""
        merges = self.drawn is not None
        if self.shape is None:
            return driving(None, names, self.relations, self.columns, merges=merges)
        shown = (column.name for column in self.columns if not column.hidden)
        outputs = tuple(zip(shown, (value for _, value in self.shape.outputs), strict=True))
        return driving(replace(self.shape, outputs=outputs), names, self.relations, self.columns, merges=merges)

    def plans(self) -> dict[str, EpochPlan]:
        """What an epoch does after a change of each input alone."""
        if self.shape is None:
            return {n: FullRefresh(reason=self.blocked or "") for n in self.relations}
        merges = self.drawn is not None
        return {n: plan(self.shape, [n], keys_of(self.relations), merges=merges) for n in self.relations}


def check(
    context: Context,
    query: Query,
    *,
    names: Sequence[str] = (),
    primary_key: Sequence[str] = (),
) -> Checked:
    """Analyse a view's query with Spark and follow its values. Changes nothing.

    Everything that is wrong with it is one error, which carries all issues.
    """
    source, made = statement_of(query)
    made = replace(made, columns=tuple(names), primary_key=tuple(primary_key))
    # Nothing comes to be, so the name may be that of a view which is there.
    return checked_part(context, Part(source=source, statement=ExplainView(name=made.name, create=made)), query)


def statement_of(query: Query) -> tuple[StatementText, CreateView]:
    """The statement that a query was found in, so that issues point into it; or one made of the query alone."""
    if query.source is not None:
        found = parse(query.source)
        made = found.create if isinstance(found, ExplainView) else found
        if isinstance(made, CreateView) and made.query == query:
            return query.source, made
    return StatementText(text=query.text), CreateView(name="", query=query)


def checked_part(context: Context, part: Part, query: Query) -> Checked:
    names = list(dict.fromkeys(ref.name.lower() for ref in query.refs))
    with context.catalog.reading() as connection:
        known = warehouse.known(connection, names)
        found = {n: reads.find_relation(connection, n) for n in names}
    settings = view_settings(context.spark)
    report = parts_report([part], known, SparkAnalyser(lambda: context.view_session(settings, small=False)))
    refuse(part.source, report.issues)
    facts = report.views[part.number]
    relations = {n: r for n, r in found.items() if r is not None}
    columns = _columns(facts.relation, facts.drawn)
    for column in columns:
        ddl.check_fields(facts.relation.name or "the query", column)
    kept = query if facts.drawn is None else facts.drawn.query
    made = direct_of_relations(kept, relations, [col for col in columns if col.name not in HIDDEN_KEY], settings)
    return Checked(
        relations=relations,
        columns=columns,
        shape=facts.shape,
        blocked=facts.blocked,
        drawn=facts.drawn,
        settings=settings,
        direct=made is not None and not context.settings.epochs_on_spark,
    )


def _columns(view: KnownRelation, drawn: Sketch | None) -> tuple[Column, ...]:
    made = [
        Column(
            name=name,
            physical=name,
            type=str(kind),
            nullable=True,
            key_position=view.key.index(name) if name in view.key else None,
        )
        for name, kind in (view.columns or {}).items()
    ]
    if drawn is not None:
        made += [
            Column(name=role.column, physical=role.column, type=role.type, nullable=True, hidden=True)
            for role in drawn.roles[len(made) :]
        ]
    if not view.key:
        made += [
            Column(name=n, physical=n, type="bigint", nullable=False, key_position=i, hidden=True)
            for i, n in enumerate(HIDDEN_KEY)
        ]
    return tuple(made)
