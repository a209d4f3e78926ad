"""A view comes to be: its query is checked, its columns and key are found, its relation is made, its rows are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from ebla.algebra.direct import direct_of_relations
from ebla.algebra.driving import Driving, HowBuilt, driving
from ebla.algebra.merge import Sketch
from ebla.algebra.nodes import Shape
from ebla.algebra.plan import EpochPlan, FullRefresh, plan
from ebla.algebra.shape import keys_of
from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import building, reads
from ebla.errors import DuplicateNameError, UsageError
from ebla.model import changes as c
from ebla.model.relation import HIDDEN_KEY, Column, Kind, Relation
from ebla.model.tasks import PACE, Build, pace
from ebla.relations import views as definition
from ebla.relations.guard import dropping, refuse_if_replaced
from ebla.relations.tasks import NO_RELATION, first_tasks
from ebla.spark.session import view_settings
from ebla.sql.lex import StatementText
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.sql.statements import CreateView, ExplainView
from ebla.tables import ddl
from ebla.tables.context import Context
from ebla.validate import KnownRelation, Part, parts_report, refuse, warehouse
from ebla.validate.spark import SparkAnalyser
from ebla.views.replace import begun


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
    source, made = _statement(query)
    made = replace(made, columns=tuple(names), primary_key=tuple(primary_key))
    # Nothing comes to be, so the name may be that of a view which is there.
    return _checked(context, Part(source=source, statement=ExplainView(name=made.name, create=made)), query)


def _statement(query: Query) -> tuple[StatementText, CreateView]:
    """The statement that a query was found in, so that issues point into it; or one made of the query alone."""
    if query.source is not None:
        found = parse(query.source)
        made = found.create if isinstance(found, ExplainView) else found
        if isinstance(made, CreateView) and made.query == query:
            return query.source, made
    return StatementText(text=query.text), CreateView(name="", query=query)


def _checked(context: Context, part: Part, query: Query) -> Checked:
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


def create_view(
    context: Context,
    name: str,
    query: Query,
    *,
    names: Sequence[str] = (),
    primary_key: Sequence[str] = (),
    if_not_exists: bool = False,
    or_replace: bool = False,
    options: Mapping[str, object] | None = None,
) -> RelationId | None:
    """Make a view's relation and the tasks that build it, in one commit; `None` if there is one already.

    With `or_replace`, a view of this name stays, and what is made is its replacement (`ebla.views.replace`).
    """
    given = {k.lower(): v for k, v in (options or {}).items()}
    refresh = given.pop("refresh", "auto")
    if refresh not in ("auto", "incremental"):
        raise UsageError(f"refresh: expected 'auto' or 'incremental', found {refresh!r}")
    speed = pace({name: given.pop(name) for name in PACE if name in given})
    tablets, replication, _ = ddl.storage_options(context, given)
    with context.catalog.reading() as connection:
        if if_not_exists and reads.find_relation(connection, name) is not None:
            return None
    source, made_by = _statement(query)
    statement = replace(
        made_by,
        name=name,
        columns=tuple(names),
        primary_key=tuple(primary_key),
        if_not_exists=if_not_exists,
        or_replace=or_replace,
        options={"refresh": refresh},
    )
    checked = _checked(context, Part(source=source, statement=statement), query)
    how = checked.how_built(definition.inputs_of(query))

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = reads.find_relation(connection, name)
        older: tuple[c.Update, ...] = ()
        if found is not None:
            if if_not_exists:
                return None
            if not or_replace:
                raise DuplicateNameError(f"view {name}: expected a free name, found a {found.kind} of that name")
            ddl.require_kind(found, Kind.VIEW, "CREATE OR REPLACE")
            older = begun(connection, found)
        read = [reads.relation(connection, n) for n in checked.relations]
        for one in read:
            refuse_if_replaced(connection, one)
        inputs = [one.id for one in read]
        nodes = list(reads.nodes(connection).values())
        made = c.CreateRelation(
            name=name if found is None else definition.replacement_name(found.name),
            kind=Kind.VIEW,
            tablets=tablets,
            replication=replication,
            columns=checked.columns,
            placement=ddl.place(nodes, tablets, replication),
            comment=None,
            options=definition.options(
                query.text,
                inputs,
                {"refresh": refresh, "named": bool(names)},
                settings=checked.settings,
                kept=None if checked.drawn is None else checked.drawn.query,
                roles=None if checked.drawn is None else checked.drawn.roles,
            ),
        )
        base = None if how.base is None else reads.relation(connection, how.base)
        build = c.CreateBuild(
            build=Build(
                view=NO_RELATION,
                base=NO_RELATION if base is None else base.id,
                rows_per_minute=speed.get("rows_per_minute"),
                chunk_rows=speed.get("chunk_rows"),
                concurrency=speed.get("concurrency"),
            ),
            tasks=first_tasks(connection, base, context.node, together=not isinstance(how, Driving)),
            of_created=True,
        )
        what = "create" if found is None else "begin to replace"
        return c.Decision(reason=f"{what} materialized view {name}", updates=(*older, made, build))

    made = context.catalog.decide(decide, node=context.node)
    if made is None:
        return None
    hit("build.created")
    return made.relation


def drop_view(
    context: Context, name: str, *, if_exists: bool = False, cascade: bool = False, while_building: bool = False
) -> bool:
    """Drop a view with all that is being built of it; `while_building`: only if it is not built yet."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = reads.find_relation(connection, name)
        if found is None and if_exists:
            return None
        if found is None:
            found = definition.load(connection, name).relation  # which says that there is none
        ddl.require_kind(found, Kind.VIEW, "CANCEL BUILD of a" if while_building else "DROP")
        if while_building and found.id not in building.builds(connection):
            raise UsageError(
                f"view {found.name}: expected a build that can be cancelled, found it built; "
                "DROP MATERIALIZED VIEW removes it"
            )
        updates, more = dropping(connection, found, cascade=cascade)
        what = "cancel the build of" if while_building else "drop materialized view"
        return c.Decision(
            reason=f"{what} {found.name}{more}",
            relation=found.id,
            updates=updates,
        )

    return context.catalog.decide(decide, node=context.node) is not None
