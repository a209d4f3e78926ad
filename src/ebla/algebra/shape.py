"""From a view's query text to its tree of values.

sqlglot parses and qualifies the text; this module walks the result. What it does not understand it says
(`NotUnderstood`), and the view is kept by full refresh: a construct can be missed, never mistaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from sqlglot import exp

from ebla.algebra.closed_subqueries import closed_parts
from ebla.algebra.grouping import (
    generates,
    generator,
    gives_one_row,
    grouping,
    refuse,
    refuse_subqueries,
    windows,
)
from ebla.algebra.names import Mention, Types, is_case_sensitive, qualified
from ebla.algebra.nodes import Branches, Group, Join, JoinKind, Leaf, Node, NotUnderstood, Pass, Shape, Value, leaves
from ebla.algebra.ordered_limit import cut_first, first_rows
from ebla.algebra.symbols import Scope, Symbols, conjuncts
from ebla.model.relation import Relation
from ebla.sql.query import Query


def shape(query: Query, inputs: Mapping[str, Types], *, case_sensitive: bool = False) -> Shape:
    """The tree of a query over inputs of these names (in lower case) and columns."""
    found = qualified(query, inputs, case_sensitive=case_sensitive)
    tree, order, count, offset = cut_first(query, found.tree)
    escapes = "\\" in query.text  # they are read in many ways
    node, outputs = _Builder(found.mentions, Symbols(computes=not escapes)).query(tree, {}, None)
    _refuse_unread(node, found.mentions.values())
    return Shape(
        root=node,
        outputs=tuple(outputs),
        first=None if order is None else first_rows(tree, order, [name for name, _ in outputs], count, offset),
        closed=closed_parts(query, node),
        used=_used(found.tree, found.mentions.values()),
    )


def _refuse_unread(node: Node, mentions: Iterable[Mention]) -> None:
    """Refuse a tree that lacks a mention of a table: a change of that table would be taken for none of the view."""
    there = {leaf.number for leaf in leaves(node)}
    if any(mention.number not in there for mention in mentions):
        raise NotUnderstood("a subquery in GROUP BY, ORDER BY or WINDOW")


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


Outputs = list[tuple[str, Value]]


class _Builder:
    def __init__(self, mentions: Mapping[str, Mention], symbols: Symbols) -> None:
        self._mentions = mentions
        self._symbols = symbols

    # ---- queries ----------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, ctes: Mapping[str, exp.Expr], outer: Scope | None) -> tuple[Node, Outputs]:
        ctes = dict(ctes)
        with_ = tree.args.get("with_") or tree.args.get("with")
        if with_ is not None:
            if with_.args.get("recursive"):
                raise NotUnderstood("WITH RECURSIVE")
            for cte in with_.expressions:
                # A CTE sees those before it; it is built anew for every use.
                ctes[cte.alias] = exp.Subquery(this=cte.this, alias=cte.args.get("alias"))
        if isinstance(tree, exp.Subquery):
            refuse(tree, "limit", "offset")
            return self.query(tree.this, ctes, outer)
        if isinstance(tree, exp.SetOperation):
            return self._set_operation(tree, ctes, outer)
        if isinstance(tree, exp.Select):
            return self._select(tree, ctes, outer)
        raise NotUnderstood(tree.key.upper())

    def _set_operation(
        self, tree: exp.SetOperation, ctes: Mapping[str, exp.Expr], outer: Scope | None
    ) -> tuple[Node, Outputs]:
        refuse(tree, "limit", "offset", "by_name", "on")
        left, right = self.query(tree.this, ctes, outer), self.query(tree.expression, ctes, outer)
        node, outputs = _branches(self._symbols, left, right)
        if tree.args.get("distinct") or not isinstance(tree, exp.Union):
            everything = frozenset(v for _, v in outputs)
            what = tree.key.upper() if tree.args.get("distinct") else f"{tree.key.upper()} ALL"  # rows may repeat
            node = Group(child=node, by=everything, keeps_rows=True, what=what)
        return node, outputs

    def _select(self, tree: exp.Select, ctes: Mapping[str, exp.Expr], outer: Scope | None) -> tuple[Node, Outputs]:
        refuse(tree, "limit", "offset", "pivots", "connect", "match", "sample", "into")
        scope = Scope(ctes=ctes, outer=outer)
        node = self._from(tree, scope)
        for lateral in tree.args.get("laterals") or []:
            node = generator(self._symbols, node, lateral, scope)
        where = tree.args.get("where")
        if where is not None:
            node = self._where(node, where.this, scope)
        node, values = grouping(self._symbols, tree, node, scope)
        having = tree.args.get("having")
        if having is not None:
            node = self._dependencies(node, having, scope)
        node = windows(self._symbols, tree, node, scope, values)
        outputs: Outputs = []
        computed: set[Value] = set()
        for projection in tree.expressions:
            node = self._dependencies(node, projection, scope)
            value = self._symbols.plain(projection.unalias(), scope, values)
            if value is None or value not in node.values:
                value = self._symbols.fresh()
                computed.add(value)
            outputs.append((projection.alias_or_name, value))
        node = Pass(child=node, computed=frozenset(computed), multiplies=any(map(generates, tree.expressions)))
        distinct = tree.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on"):
                raise NotUnderstood("DISTINCT ON")
            node = Group(child=node, by=frozenset(v for _, v in outputs), what="DISTINCT")
        return node, outputs

    # ---- FROM and joins ---------------------------------------------------------------------------------

    def _from(self, tree: exp.Select, scope: Scope) -> Node:
        from_ = tree.args.get("from_") or tree.args.get("from")
        if from_ is None:
            return Leaf(number=-1, table="", columns={})
        node = self._relation(from_.this, scope)
        for join in [*(from_.this.args.get("joins") or []), *(tree.args.get("joins") or [])]:
            node = self._join(node, join, scope)
        return node

    def _relation(self, tree: exp.Expr, scope: Scope) -> Node:
        if tree.args.get("sample") or tree.args.get("pivots") or tree.args.get("laterals"):
            raise NotUnderstood("TABLESAMPLE, PIVOT or LATERAL VIEW")
        if isinstance(tree, exp.Table):
            name = tree.name
            mention = self._mentions.get(name)
            if mention is not None and name not in scope.ctes:
                columns = {folded: self._symbols.fresh(column.type) for folded, column in mention.columns.items()}
                names = {columns[folded]: column.name for folded, column in mention.columns.items()}
                node: Node = self._symbols.leaf(mention.number, mention.table, names)
            elif name in scope.ctes:
                body = scope.ctes[name]
                others = {n: c for n, c in scope.ctes.items() if n != name}
                node, columns = self._derived(body, others)
            else:
                raise NotUnderstood(f"table function {name}")
        elif isinstance(tree, exp.Subquery):
            node, columns = self._derived(tree, scope.ctes)
        elif isinstance(tree, exp.Values):
            node, columns = _constant_rows(self._symbols, tree)
        else:
            raise NotUnderstood(tree.key.upper())
        scope.add(tree.alias_or_name, columns)
        return node

    def _derived(self, tree: exp.Expr, ctes: Mapping[str, exp.Expr]) -> tuple[Node, dict[str, Value]]:
        node, outputs = self.query(tree, ctes, None)
        alias = tree.args.get("alias")
        names = [c.name for c in alias.args.get("columns") or []] if alias is not None else []
        if names and len(names) != len(outputs):
            raise NotUnderstood("a list of column names of another length")
        names_out = names or [name for name, _ in outputs]
        # Spark refuses to read a name that two columns have.
        return node, {n: v for n, (_, v) in zip(names_out, outputs, strict=True) if names_out.count(n) == 1}

    def _join(self, left: Node, join: exp.Join, scope: Scope) -> Node:
        if join.args.get("using") or (join.method and join.method.upper() in ("NATURAL", "ASOF")):
            raise NotUnderstood("NATURAL JOIN or USING")
        if isinstance(join.this, exp.Lateral):
            return self._lateral(left, join, join.this, scope)
        right = self._relation(join.this, scope)
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if kind in ("SEMI", "ANTI"):
            which = JoinKind(kind.lower())
        elif side in ("LEFT", "RIGHT", "FULL"):
            which = JoinKind(side.lower())
        else:
            which = JoinKind.INNER
        on = join.args.get("on")
        if on is not None:
            refuse_subqueries(on)
        pairs = self._symbols.pairs(conjuncts(on), left, right, scope) if on is not None else ()
        fused: tuple[Value, ...] = ()
        if which is JoinKind.FULL:
            fused = self._symbols.fuse(pairs)
        return self._symbols.joined(Join(kind=which, left=left, right=right, pairs=pairs, fused=fused))

    def _lateral(self, left: Node, join: exp.Join, lateral: exp.Lateral, scope: Scope) -> Node:
        """What a lateral subquery makes of a row follows from the row and from those that its conditions equate."""
        if join.side not in ("", "LEFT") or join.kind not in ("", "INNER", "CROSS", "OUTER"):
            raise NotUnderstood(f"a {join.side} {join.kind} JOIN LATERAL")
        on = join.args.get("on")
        if on is not None:
            refuse_subqueries(on)
        query = lateral.this
        if not isinstance(query, exp.Subquery):
            return generator(self._symbols, left, lateral, scope)
        node = self._subquery(left, query, None, JoinKind.SEMI, scope)
        alias = lateral.args["alias"]
        names = [c.name for c in alias.args.get("columns") or []] or [p.alias_or_name for p in query.this.selects]
        columns = {name: self._symbols.fresh() for name in names if names.count(name) == 1}
        scope.add(alias.name, columns)
        return Pass(child=node, computed=frozenset(columns.values()), multiplies=not gives_one_row(query.this))

    # ---- WHERE ------------------------------------------------------------------------------------------

    def _where(self, node: Node, condition: exp.Expr, scope: Scope) -> Node:
        conditions = conjuncts(condition)
        # Equalities in WHERE join what FROM lists with commas.
        node = self._symbols.with_pairs(node, conditions, scope)
        for one in conditions:
            node = self._predicate(node, one, scope)
        return Pass(child=node)

    def _predicate(self, node: Node, condition: exp.Expr, scope: Scope) -> Node:
        negated = isinstance(condition, exp.Not)
        inner = condition.this if isinstance(condition, exp.Not) else condition
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Exists):
            return self._subquery(node, inner.this, None, JoinKind.ANTI if negated else JoinKind.SEMI, scope)
        if isinstance(inner, exp.In) and inner.args.get("query") is not None and not _subqueries(inner.this):
            kind = JoinKind.NULL_AWARE_ANTI if negated else JoinKind.SEMI
            return self._subquery(node, inner.args["query"], inner.this, kind, scope)
        return self._dependencies(node, condition, scope)

    def _dependencies(self, node: Node, tree: exp.Expr, scope: Scope) -> Node:
        """What an expression reads through subqueries: scalar ones, and `IN` and `EXISTS` in any place.

        Each row depends on the rows that the subquery's condition equates with it, as in a semi-join. `IN` may be NULL,
        and an expression can tell; so a NULL in its list matters to every row, as in `NOT IN`.
        """
        for found in _subqueries(tree):
            around = found.parent
            if isinstance(around, exp.In) and around.args.get("query") is found:
                node = self._subquery(node, found, around.this, JoinKind.NULL_AWARE_ANTI, scope)
            else:
                node = self._subquery(node, found, None, JoinKind.SEMI, scope)
        return node

    def _subquery(
        self,
        node: Node,
        query: exp.Expr,
        member: exp.Expr | None,
        kind: JoinKind,
        scope: Scope,
    ) -> Node:
        while isinstance(query, exp.Subquery):
            query = query.this
        pairs: list[tuple[Value, Value]] = []
        theirs: list[Value | None] = []
        correlated = Scope(outer=scope).is_correlated(query)
        if correlated:
            if not isinstance(query, exp.Select) or query.args.get("with_") or query.args.get("with"):
                raise NotUnderstood("a correlated subquery with a set operator or WITH")
            inner = Scope(ctes=scope.ctes, outer=scope)
            right, conditions = self._correlated(query, inner)
            pairs += self._symbols.pairs(conditions, node, right, inner)
            theirs = [self._symbols.plain(p.unalias(), inner) for p in query.expressions]
        else:
            right, outputs = self.query(query, scope.ctes, None)
            theirs = [value for _, value in outputs]
        if member is not None:
            members = member.expressions if isinstance(member, exp.Tuple) else [member]
            ours = [self._symbols.plain(m, scope) for m in members]
            found = self._symbols.alike_pairs(zip(ours, theirs, strict=False), node, right)
            if kind is JoinKind.NULL_AWARE_ANTI:
                pairs = [*pairs, *found] if len(found) == len(members) else []
            else:
                pairs += found
        return Join(kind=kind, left=node, right=right, pairs=tuple(pairs), closed=not correlated)

    def _correlated(self, query: exp.Select, inner: Scope) -> tuple[Node, list[exp.Expr]]:
        """The rows that a correlated subquery reads, and its conditions.

        Whatever it makes of them (aggregates, groups, an order), it depends on the rows that its conditions let pass.
        """
        refuse(query, "pivots", "laterals", "connect", "match", "sample")
        right = self._from(query, inner)
        where = query.args.get("where")
        conditions = conjuncts(where.this) if where is not None else []
        own = [c for c in conditions if not inner.is_correlated(c)]
        right = self._symbols.with_pairs(right, own, inner)
        for one in own:
            right = self._predicate(right, one, inner)
        others = [c for c in conditions if c not in own]
        having = query.args.get("having")
        for part in [*others, *query.expressions, *([having] if having is not None else [])]:
            right = self._dependencies(right, part, inner)
        return right, conditions


def _used(tree: exp.Expr, mentions: Iterable[Mention]) -> dict[str, frozenset[str]]:
    """The columns of each input that a query mentions, or may."""
    used: dict[str, set[str]] = {}
    for column in tree.find_all(exp.Column):
        for mention in mentions:
            found = mention.columns.get(column.name)
            if found is not None:
                used.setdefault(mention.table, set()).add(found.name)
    return {table: frozenset(names) for table, names in used.items()}


def _constant_rows(symbols: Symbols, tree: exp.Values) -> tuple[Node, dict[str, Value]]:
    """`VALUES`: rows that never change."""
    refuse_subqueries(tree)
    alias = tree.args.get("alias")
    columns = {column.name: symbols.fresh() for column in (alias.args.get("columns") or [] if alias else [])}
    return Pass(child=Leaf(number=-1, table="", columns={}), computed=frozenset(columns.values())), columns


def _branches(symbols: Symbols, one: tuple[Node, Outputs], other: tuple[Node, Outputs]) -> tuple[Node, Outputs]:
    (left, ours), (right, theirs) = one, other
    if len(ours) != len(theirs):
        raise NotUnderstood("branches of different width")
    outputs: Outputs = []
    shared: list[tuple[Value, Value, Value]] = []
    computed: set[Value] = set()
    for (name, a), (_, b) in zip(ours, theirs, strict=True):
        kind = symbols.type_of(a) if symbols.type_of(a) == symbols.type_of(b) else None
        value = symbols.fresh(kind)
        if kind is None:
            computed.add(value)  # converted to a common type: no longer the branch's value
        else:
            shared.append((value, a, b))
        outputs.append((name, value))
    node = Branches(
        children=(left, right),
        outputs=tuple(v for v, _, _ in shared),
        inputs=(tuple(a for _, a, _ in shared), tuple(b for _, _, b in shared)),
    )
    return (Pass(child=node, computed=frozenset(computed)) if computed else node), outputs


def _subqueries(tree: exp.Expr) -> list[exp.Expr]:
    """The outermost subqueries of an expression."""
    if isinstance(tree, exp.Subquery | exp.Query):
        return [tree]
    found: list[exp.Expr] = []
    for child in tree.iter_expressions():
        found += _subqueries(child)
    return found
