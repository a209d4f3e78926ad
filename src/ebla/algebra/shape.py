"""From a view's query text to its tree of values.

sqlglot parses and qualifies the text; this module walks the result. What it does not understand it says
(`NotUnderstood`), and the view is kept by full refresh: a construct can be missed, never mistaken.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from sqlglot import exp

from ebla.algebra.names import Qualified, Types, is_case_sensitive, qualified
from ebla.algebra.nodes import Branches, Group, Join, JoinKind, Leaf, Node, NotUnderstood, Pass, Shape, Value
from ebla.model.relation import Relation
from ebla.sql.query import Query

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


def shape(query: Query, inputs: Mapping[str, Types], *, case_sensitive: bool = False) -> Shape:
    """The tree of a query over inputs of these names (in lower case) and columns."""
    return _Builder(qualified(query, inputs, case_sensitive=case_sensitive)).whole()


def understood(query: Query, relations: Mapping[str, Relation], settings: Mapping[str, str]) -> Shape:
    """The tree of a view's query over these relations, by name in lower case, under the settings that the view keeps.

    Trees are kept: parsing takes long.
    """
    inputs = tuple((n, tuple((c.name, c.type) for c in r.columns)) for n, r in sorted(relations.items()))
    return _understood(query, inputs, is_case_sensitive(settings))


@lru_cache(maxsize=256)
def _understood(
    query: Query, inputs: tuple[tuple[str, tuple[tuple[str, str], ...]], ...], case_sensitive: bool
) -> Shape:
    return shape(query, {name: dict(columns) for name, columns in inputs}, case_sensitive=case_sensitive)


def keys_of(relations: Mapping[str, Relation]) -> dict[str, list[str]]:
    return {n: [k.name for k in r.key] for n, r in relations.items()}


@dataclass(slots=True, kw_only=True)
class _Source:
    """A relation in FROM: its node, and the value of each of its columns."""

    node: Node
    columns: dict[str, Value]


@dataclass(slots=True, kw_only=True)
class _Scope:
    """Names that can be used in an expression: sources by folded alias, and those of the query around it."""

    sources: dict[str, _Source] = field(default_factory=dict)
    outer: _Scope | None = None

    def add(self, alias: str, source: _Source) -> None:
        if alias in self.sources:
            raise NotUnderstood(f"two sources of the name {alias}")
        self.sources[alias] = source

    def find(self, column: exp.Column) -> tuple[Value | None, bool]:
        """The value of a column, and whether it belongs to a query around this one."""
        source = self.sources.get(column.table)
        if source is not None:
            return source.columns.get(column.name), False
        if self.outer is not None:
            return self.outer.find(column)[0], True
        return None, False


class _Builder:
    def __init__(self, query: Qualified) -> None:
        self._tree = query.tree
        self._mentions = query.mentions
        self._count = itertools.count(1)
        self._types: dict[Value, str] = {}
        self._fused: dict[frozenset[Value], Value] = {}

    def whole(self) -> Shape:
        node, outputs = self._query(self._tree, {}, None)
        used: dict[str, set[str]] = {}
        for column in self._tree.find_all(exp.Column):
            for mention in self._mentions.values():
                found = mention.columns.get(column.name)
                if found is not None:
                    used.setdefault(mention.table, set()).add(found.name)
        return Shape(root=node, outputs=tuple(outputs), used={t: frozenset(c) for t, c in used.items()})

    def _fresh(self, kind: str | None = None) -> Value:
        value = Value(next(self._count))
        if kind is not None:
            self._types[value] = kind
        return value

    # ---- queries ----------------------------------------------------------------------------------------

    def _query(
        self, tree: exp.Expr, ctes: Mapping[str, exp.Expr], outer: _Scope | None
    ) -> tuple[Node, list[tuple[str, Value]]]:
        ctes = dict(ctes)
        with_ = tree.args.get("with_") or tree.args.get("with")
        if with_ is not None:
            if with_.args.get("recursive"):
                raise NotUnderstood("WITH RECURSIVE")
            for cte in with_.expressions:
                # A CTE sees those before it; it is built anew for every use.
                ctes[cte.alias] = exp.Subquery(this=cte.this, alias=cte.args.get("alias"))
                ctes[cte.alias].set("_ctes", None)
        if isinstance(tree, exp.Subquery):
            self._refuse(tree, "limit", "offset")
            return self._query(tree.this, ctes, outer)
        if isinstance(tree, exp.SetOperation):
            return self._set_operation(tree, ctes, outer)
        if isinstance(tree, exp.Select):
            return self._select(tree, ctes, outer)
        raise NotUnderstood(tree.key.upper())

    def _refuse(self, tree: exp.Expr, *parts: str) -> None:
        for part in parts:
            if tree.args.get(part):
                raise NotUnderstood(part.upper().replace("_", " "))

    def _set_operation(
        self, tree: exp.SetOperation, ctes: Mapping[str, exp.Expr], outer: _Scope | None
    ) -> tuple[Node, list[tuple[str, Value]]]:
        self._refuse(tree, "limit", "offset", "by_name", "on")
        left, ours = self._query(tree.this, ctes, outer)
        right, theirs = self._query(tree.expression, ctes, outer)
        if len(ours) != len(theirs):
            raise NotUnderstood("branches of different width")
        outputs: list[tuple[str, Value]] = []
        shared: list[tuple[Value, Value, Value]] = []
        computed: set[Value] = set()
        for (name, a), (_, b) in zip(ours, theirs, strict=True):
            if self._types.get(a) is not None and self._types.get(a) == self._types.get(b):
                value = self._fresh(self._types[a])
                shared.append((value, a, b))
            else:
                value = self._fresh()  # converted to a common type: no longer the branch's value
                computed.add(value)
            outputs.append((name, value))
        node: Node = Branches(
            children=(left, right),
            outputs=tuple(v for v, _, _ in shared),
            inputs=(tuple(a for _, a, _ in shared), tuple(b for _, _, b in shared)),
        )
        node = Pass(child=node, computed=frozenset(computed)) if computed else node
        if tree.args.get("distinct") or not isinstance(tree, exp.Union):
            everything = frozenset(v for _, v in outputs)
            what = tree.key.upper() if tree.args.get("distinct") else f"{tree.key.upper()} ALL"  # rows may repeat
            node = Group(child=node, by=everything, keeps_rows=True, what=what)
        return node, outputs

    def _select(
        self, tree: exp.Select, ctes: Mapping[str, exp.Expr], outer: _Scope | None
    ) -> tuple[Node, list[tuple[str, Value]]]:
        self._refuse(tree, "limit", "offset", "pivots", "connect", "match", "sample", "into")
        scope = _Scope(outer=outer)
        node = self._from(tree, ctes, scope)
        for lateral in tree.args.get("laterals") or []:
            node = self._lateral_view(node, lateral, scope)
        where = tree.args.get("where")
        if where is not None:
            node = self._where(node, where.this, ctes, scope)
        node, known = self._grouping(tree, node, scope)
        having = tree.args.get("having")
        if having is not None:
            node = self._dependencies(node, having, ctes, scope)
        node = self._windows(tree, node, scope, known)
        outputs: list[tuple[str, Value]] = []
        computed: set[Value] = set()
        for projection in tree.expressions:
            node = self._dependencies(node, projection, ctes, scope)
            value = self._plain(projection.unalias(), scope, known)
            if value is None:
                value = self._fresh()
                computed.add(value)
            outputs.append((projection.alias_or_name, value))
        node = Pass(child=node, computed=frozenset(computed), multiplies=any(map(_generates, tree.expressions)))
        distinct = tree.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on"):
                raise NotUnderstood("DISTINCT ON")
            node = Group(child=node, by=frozenset(v for _, v in outputs), what="DISTINCT")
        return node, outputs

    # ---- FROM and joins ---------------------------------------------------------------------------------

    def _from(self, tree: exp.Select, ctes: Mapping[str, exp.Expr], scope: _Scope) -> Node:
        from_ = tree.args.get("from_") or tree.args.get("from")
        if from_ is None:
            return Leaf(number=-1, table="", columns={})
        node = self._relation(from_.this, ctes, scope)
        for join in [*(from_.this.args.get("joins") or []), *(tree.args.get("joins") or [])]:
            node = self._join(node, join, ctes, scope)
        return node

    def _lateral_view(self, node: Node, lateral: exp.Lateral, scope: _Scope) -> Node:
        """`LATERAL VIEW explode(…) t AS a, b`: several rows of one, with computed columns."""
        alias = lateral.args.get("alias")
        if alias is None or not lateral.args.get("view") or lateral.find(exp.Subquery, exp.Select):
            raise NotUnderstood("LATERAL")
        columns = {column.name: self._fresh() for column in alias.args.get("columns") or []}
        made = Pass(child=node, computed=frozenset(columns.values()), multiplies=True)
        scope.add(alias.name, _Source(node=made, columns=columns))
        return made

    def _relation(self, tree: exp.Expr, ctes: Mapping[str, exp.Expr], scope: _Scope) -> Node:
        if tree.args.get("sample") or tree.args.get("pivots") or tree.args.get("laterals"):
            raise NotUnderstood("TABLESAMPLE, PIVOT or LATERAL VIEW")
        if isinstance(tree, exp.Table):
            name = tree.name
            mention = self._mentions.get(name)
            if mention is not None and name not in ctes:
                columns = {folded: self._fresh(column.type) for folded, column in mention.columns.items()}
                node: Node = Leaf(
                    number=mention.number,
                    table=mention.table,
                    columns={columns[folded]: column.name for folded, column in mention.columns.items()},
                )
            elif name in ctes:
                body = ctes[name]
                others = {n: c for n, c in ctes.items() if n != name}
                node, columns = self._derived(body, others, None)
            else:
                raise NotUnderstood(f"table function {name}")
        elif isinstance(tree, exp.Subquery):
            node, columns = self._derived(tree, ctes, None)
        else:
            raise NotUnderstood(tree.key.upper())
        scope.add(tree.alias_or_name, _Source(node=node, columns=columns))
        return node

    def _derived(
        self, tree: exp.Expr, ctes: Mapping[str, exp.Expr], outer: _Scope | None
    ) -> tuple[Node, dict[str, Value]]:
        node, outputs = self._query(tree, ctes, outer)
        alias = tree.args.get("alias")
        names = [c.name for c in alias.args.get("columns") or []] if alias is not None else []
        if names and len(names) != len(outputs):
            raise NotUnderstood("a list of column names of another length")
        shown = names or [name for name, _ in outputs]
        if len(set(shown)) < len(shown):
            raise NotUnderstood("a subquery with two columns of one name")
        return node, {n: v for n, (_, v) in zip(shown, outputs, strict=True)}

    def _join(self, left: Node, join: exp.Join, ctes: Mapping[str, exp.Expr], scope: _Scope) -> Node:
        if join.args.get("using") or (join.method and join.method.upper() in ("NATURAL", "ASOF")):
            raise NotUnderstood("NATURAL JOIN or USING")
        if isinstance(join.this, exp.Lateral | exp.Unnest):
            raise NotUnderstood("LATERAL")
        right = self._relation(join.this, ctes, scope)
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if kind in ("SEMI", "ANTI"):
            which = JoinKind(kind.lower())
        elif side in ("LEFT", "RIGHT", "FULL"):
            which = JoinKind(side.lower())
        else:
            which = JoinKind.INNER
        on = join.args.get("on")
        if on is not None:
            self._refuse_subqueries(on)
        pairs = self._pairs(_conjuncts(on), left, right, scope) if on is not None else ()
        fused: tuple[Value, ...] = ()
        if which is JoinKind.FULL:
            fused = tuple(self._fresh(self._types[a]) for a, _ in pairs)
            self._fused.update({frozenset(pair): value for pair, value in zip(pairs, fused, strict=True)})
        return Join(kind=which, left=left, right=right, pairs=pairs, fused=fused)

    def _pairs(
        self, conditions: Sequence[exp.Expr], left: Node, right: Node, scope: _Scope
    ) -> tuple[tuple[Value, Value], ...]:
        """Equalities of a column of the left with one of the right, of types whose equality needs no conversion."""
        found = []
        for condition in [*conditions, *_implied(conditions)]:
            if not isinstance(condition, exp.EQ):
                continue
            a = self._plain(condition.this, scope, {})
            b = self._plain(condition.expression, scope, {})
            if a is None or b is None:
                continue
            if a in right.values and b in left.values:
                a, b = b, a
            if a in left.values and b in right.values and self._alike(a, b):
                found.append((a, b))
        return tuple(found)

    def _alike(self, a: Value, b: Value) -> bool:
        ours, theirs = self._types.get(a), self._types.get(b)
        return ours is not None and (ours == theirs or {ours, theirs} <= _INTEGERS)

    # ---- WHERE ------------------------------------------------------------------------------------------

    def _where(self, node: Node, condition: exp.Expr, ctes: Mapping[str, exp.Expr], scope: _Scope) -> Node:
        conditions = _conjuncts(condition)
        # Equalities in WHERE join what FROM lists with commas.
        node = self._with_pairs(node, conditions, scope)
        for one in conditions:
            node = self._predicate(node, one, ctes, scope)
        return Pass(child=node)

    def _with_pairs(self, node: Node, conditions: Sequence[exp.Expr], scope: _Scope) -> Node:
        """Give inner joins the equalities that stand in WHERE; they hold for every row that remains.

        The text's order of inner joins means nothing: each source comes when an equality leads to it, so that a change
        is followed, and an input is narrowed, from one to the next.
        """
        if not isinstance(node, Join):
            return node
        if node.kind is not JoinKind.INNER:
            return replace(node, left=self._with_pairs(node.left, conditions, scope))
        first, *others = _inner_sources(node)
        known = _inner_pairs(node)
        made = self._with_pairs(first, conditions, scope)
        while others:
            links = [(one, self._links(known, conditions, made, one, scope)) for one in others]
            found, pairs = next(((one, some) for one, some in links if some), (others[0], ()))
            others = [one for one in others if one is not found]
            made = Join(kind=JoinKind.INNER, left=made, right=found, pairs=pairs)
        return made

    def _links(
        self,
        known: Sequence[tuple[Value, Value]],
        conditions: Sequence[exp.Expr],
        left: Node,
        right: Node,
        scope: _Scope,
    ) -> tuple[tuple[Value, Value], ...]:
        """Everything that equates the left with the right: pairs of joins, and conditions."""
        both_ways = [(a, b) for pair in known for a, b in (pair, pair[::-1])]
        found = [(a, b) for a, b in both_ways if a in left.values and b in right.values]
        return tuple(dict.fromkeys((*found, *self._pairs(conditions, left, right, scope))))

    def _predicate(self, node: Node, condition: exp.Expr, ctes: Mapping[str, exp.Expr], scope: _Scope) -> Node:
        negated = isinstance(condition, exp.Not)
        inner = condition.this if isinstance(condition, exp.Not) else condition
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Exists):
            return self._subquery(node, inner.this, None, JoinKind.ANTI if negated else JoinKind.SEMI, ctes, scope)
        if isinstance(inner, exp.In) and inner.args.get("query") is not None and not _subqueries(inner.this):
            kind = JoinKind.NULL_AWARE_ANTI if negated else JoinKind.SEMI
            return self._subquery(node, inner.args["query"], inner.this, kind, ctes, scope)
        return self._dependencies(node, condition, ctes, scope)

    def _dependencies(self, node: Node, tree: exp.Expr, ctes: Mapping[str, exp.Expr], scope: _Scope) -> Node:
        """What an expression reads through subqueries: scalar ones, and `IN` and `EXISTS` in any place.

        Each row depends on the rows that the subquery's condition equates with it, as in a semi-join. `IN` may be NULL,
        and an expression can tell; so a NULL in its list matters to every row, as in `NOT IN`.
        """
        for found in _subqueries(tree):
            around = found.parent
            if isinstance(around, exp.In) and around.args.get("query") is found:
                node = self._subquery(node, found, around.this, JoinKind.NULL_AWARE_ANTI, ctes, scope)
            else:
                node = self._subquery(node, found, None, JoinKind.SEMI, ctes, scope)
        return node

    def _subquery(
        self,
        node: Node,
        query: exp.Expr,
        member: exp.Expr | None,
        kind: JoinKind,
        ctes: Mapping[str, exp.Expr],
        scope: _Scope,
    ) -> Node:
        while isinstance(query, exp.Subquery):
            query = query.this
        pairs: list[tuple[Value, Value]] = []
        theirs: list[Value | None] = []
        if self._is_correlated(query, _Scope(outer=scope)):
            if not isinstance(query, exp.Select) or query.args.get("with_") or query.args.get("with"):
                raise NotUnderstood("a correlated subquery with a set operator or WITH")
            inner = _Scope(outer=scope)
            right, conditions = self._correlated(query, ctes, inner)
            pairs += self._pairs(conditions, node, right, inner)
            theirs = [self._plain(p.unalias(), inner, {}) for p in query.expressions]
        else:
            right, outputs = self._query(query, ctes, None)
            theirs = [value for _, value in outputs]
        if member is not None:
            members = member.expressions if isinstance(member, exp.Tuple) else [member]
            ours = [self._plain(m, scope, {}) for m in members]
            found = [
                (a, b)
                for a, b in zip(ours, theirs, strict=False)
                if a is not None and b is not None and self._alike(a, b) and a in node.values and b in right.values
            ]
            if kind is JoinKind.NULL_AWARE_ANTI:
                pairs = [*pairs, *found] if len(found) == len(members) else []
            else:
                pairs += found
        return Join(kind=kind, left=node, right=right, pairs=tuple(pairs))

    def _correlated(
        self, query: exp.Select, ctes: Mapping[str, exp.Expr], inner: _Scope
    ) -> tuple[Node, list[exp.Expr]]:
        """The rows that a correlated subquery reads, and its conditions.

        Whatever it makes of them (aggregates, groups, an order), it depends on the rows that its conditions let pass.
        """
        self._refuse(query, "pivots", "laterals", "connect", "match", "sample")
        right = self._from(query, ctes, inner)
        where = query.args.get("where")
        conditions = _conjuncts(where.this) if where is not None else []
        own = [c for c in conditions if not self._is_correlated(c, inner)]
        right = self._with_pairs(right, own, inner)
        for one in own:
            right = self._predicate(right, one, ctes, inner)
        others = [c for c in conditions if c not in own]
        having = query.args.get("having")
        for part in [*others, *query.expressions, *([having] if having is not None else [])]:
            right = self._dependencies(right, part, ctes, inner)
        return right, conditions

    def _is_correlated(self, tree: exp.Expr, scope: _Scope) -> bool:
        columns = [tree] if isinstance(tree, exp.Column) else tree.find_all(exp.Column)
        local = {s.alias_or_name for s in tree.find_all(exp.Table, exp.Subquery)}
        return any(
            c.table not in scope.sources and c.table not in local and scope.find(c)[0] is not None for c in columns
        )

    def _refuse_subqueries(self, tree: exp.Expr) -> None:
        if tree.find(exp.Subquery, exp.Select, exp.Exists):
            raise NotUnderstood("a subquery in an expression")

    # ---- grouping, windows, columns ---------------------------------------------------------------------

    def _grouping(self, tree: exp.Select, node: Node, scope: _Scope) -> tuple[Node, dict[str, Value]]:
        """The aggregation of a SELECT, if it has one, and the values of the expressions it groups by."""
        group = tree.args.get("group")
        parts = [*tree.expressions, *([tree.args["having"]] if tree.args.get("having") else [])]
        aggregates = any(_aggregates(part) for part in parts)
        if group is None and not aggregates:
            # A function that sqlglot does not know might aggregate, and then one row would depend on all.
            unknown = next((f for part in parts for f in part.find_all(exp.Anonymous)), None)
            if unknown is not None:
                raise NotUnderstood(f"function {unknown.name}, which may be an aggregate")
            return node, {}
        known: dict[str, Value] = {}
        if group is not None:
            for part in ("grouping_sets", "rollup", "cube", "totals", "all"):
                if group.args.get(part):
                    raise NotUnderstood(part.upper().replace("_", " "))
            for one in group.expressions:
                value = self._plain(one, scope, {})
                known[one.sql("spark")] = self._fresh() if value is None else value
        by = frozenset(known.values())
        computed = by - node.values
        below: Node = Pass(child=node, computed=computed) if computed else node
        return Group(child=below, by=by), known

    def _windows(self, tree: exp.Select, node: Node, scope: _Scope, known: Mapping[str, Value]) -> Node:
        windows = [w for part in tree.expressions for w in part.find_all(exp.Window)]
        qualify_ = tree.args.get("qualify")
        if qualify_ is not None:
            self._refuse_subqueries(qualify_)
            windows += list(qualify_.find_all(exp.Window))
        if not windows:
            return node
        shared: frozenset[Value] | None = None
        for window in windows:
            if window.args.get("alias"):
                raise NotUnderstood("a named window")
            found = [self._plain(p, scope, known) for p in window.args.get("partition_by") or []]
            by = frozenset(v for v in found if v is not None)
            shared = by if shared is None else shared & by
        return Group(child=node, by=shared or frozenset(), keeps_rows=True, what="window function")

    def _plain(self, tree: exp.Expr, scope: _Scope, known: Mapping[str, Value]) -> Value | None:
        """The value of an expression that is a column, or one that the query groups by."""
        while isinstance(tree, exp.Paren):
            tree = tree.this
        grouped = known.get(tree.sql("spark")) if known else None
        if grouped is not None:
            return grouped
        if isinstance(tree, exp.Column):
            return scope.find(tree)[0]
        if isinstance(tree, exp.Coalesce):
            return self._coalesced([tree.this, *tree.expressions], scope)
        return None

    def _coalesced(self, parts: Sequence[exp.Expr], scope: _Scope) -> Value | None:
        """`coalesce(a.id, b.id)` of what a full join equates: the value of the side that a row comes from."""
        found = self._plain(parts[0], scope, {})
        for part in parts[1:]:
            other = self._plain(part, scope, {})
            if found is None or other is None:
                return None
            found = self._fused.get(frozenset((found, other)))
        return found


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.this), *_conjuncts(condition.expression)]
    return [condition]


def _implied(conditions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """What holds in every branch of an `OR`, and so holds whichever branch does."""
    found: list[exp.Expr] = []
    for condition in conditions:
        first, *others = [_conjuncts(branch) for branch in _disjuncts(condition)]
        found += [one for one in first if others and all(one in branch for branch in others)]
    return found


def _disjuncts(condition: exp.Expr) -> list[exp.Expr]:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.Or):
        return [*_disjuncts(condition.this), *_disjuncts(condition.expression)]
    return [condition]


def _inner_sources(node: Node) -> list[Node]:
    """What a chain of inner joins joins, in the order of the text."""
    if isinstance(node, Join) and node.kind is JoinKind.INNER:
        return [*_inner_sources(node.left), node.right]
    return [node]


def _inner_pairs(node: Node) -> list[tuple[Value, Value]]:
    if isinstance(node, Join) and node.kind is JoinKind.INNER:
        return [*_inner_pairs(node.left), *node.pairs]
    return []


def _subqueries(tree: exp.Expr) -> list[exp.Expr]:
    """The outermost subqueries of an expression."""
    if isinstance(tree, exp.Subquery | exp.Query):
        return [tree]
    found: list[exp.Expr] = []
    for child in tree.iter_expressions():
        found += _subqueries(child)
    return found


_GENERATORS = frozenset({"stack", "inline", "inline_outer", "json_tuple", "posexplode_outer", "explode_outer"})


def _generates(tree: exp.Expr) -> bool:
    return tree.find(exp.Explode, exp.Posexplode, exp.Unnest, exp.Inline) is not None or any(
        call.name.lower() in _GENERATORS for call in tree.find_all(exp.Anonymous)
    )


def _aggregates(tree: exp.Expr) -> bool:
    """Whether an expression aggregates: it has an aggregate function that is not a window's, nor of a subquery."""
    return any(not _inside(found, tree, (exp.Window, exp.Subquery, exp.Exists)) for found in tree.find_all(exp.AggFunc))


def _inside(part: exp.Expr, tree: exp.Expr, kinds: tuple[type[exp.Expr], ...]) -> bool:
    """Whether a part of an expression stands below one of these kinds, within that expression: not above it."""
    while part is not tree and part.parent is not None:
        part = part.parent
        if isinstance(part, kinds):
            return True
    return False
