"""Phase 3, inside one query: every alias and column is looked up, and all that are wrong are reported.

sqlglot parses the user's own text, so its identifiers know their places there. What it cannot parse, or parses into
something unusual, is left to Spark: see `scope`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ebla.base.issue import Code, did_you_mean
from ebla.errors import EblaError
from ebla.sql.chance import LITERALS, described
from ebla.sql.cursor import words
from ebla.sql.lex import Kind, lex, unquote_name
from ebla.validate.facts import RelationFacts
from ebla.validate.scope import Answer, FoundColumn, Output, Outputs, Scope, Source, columns_of
from ebla.values import types

_GENERATORS = (exp.UDTF, exp.Explode, exp.Posexplode, exp.Inline, exp.QueryTransform, exp.Anonymous)


def outputs(text: str, tree: exp.Select, scope: Scope) -> Outputs:
    if scope.blind or tree.args.get("kind") or tree.args.get("operation_modifiers"):
        return None
    found: list[Output] = []
    for projection in tree.expressions:
        more = _projected(text, projection, scope)
        if more is None:
            return None
        found += more
    return tuple(found)


def _projected(text: str, tree: exp.Expr, scope: Scope) -> Sequence[Output] | None:
    match tree:
        case exp.Star():
            return _expanded(tree, [s for s in scope.sources if not s.hidden], scope)
        case exp.Column(this=exp.Star()):
            source = scope.source(tree.parts[0].name.lower()) if len(tree.parts) == 2 else None
            return None if source is None else _expanded(tree.this, [source], scope)
        case exp.Alias():
            at = place(text, tree.args["alias"])
            return [Output(name=tree.alias, type=type_of(tree.this, scope), at=at)]
        case exp.Aliases():
            return [Output(name=i.name, at=place(text, i)) for i in tree.expressions]
        case exp.Column():
            last = tree.parts[-1]
            return [Output(name=last.name, type=type_of(tree, scope), at=place(text, last))]
        case _ if tree.find(*_GENERATORS) is not None:
            return None  # may be several columns
        case _:
            return [Output(name=None)]


def _expanded(star: exp.Expr, sources: Sequence[Source], scope: Scope) -> Sequence[Output] | None:
    if scope.merged or scope.merges_all or star.args.get("replace") or star.args.get("rename"):
        return None
    left_out = star.args.get("except_") or star.args.get("except") or []
    if any(not isinstance(i, exp.Identifier | exp.Column) or i.find(exp.Dot) or i.text("table") for i in left_out):
        return None  # a field of a column: the column stays, with another type
    without = {i.name.lower() for i in left_out}
    at = star.meta.get("start", 0)
    found: list[Output] = []
    for source in sources:
        if source.columns is None:
            return None
        found += [replace(o, at=at) for n, o in source.columns.items() if n not in without]
    return found


def type_of(tree: exp.Expr, scope: Scope) -> str | None:
    match tree:
        case exp.Paren():
            return type_of(tree.this, scope)
        case exp.Column():
            names = [p.name.lower() for p in tree.parts]
            found = scope.find(names, aliases=False)
            plain = len(names) == 1 or (len(names) == 2 and any(s.alias == names[0] for s in found.sources))
            return found.column.type if found.column is not None and plain else None
        case exp.Cast():
            try:
                return types.canonical(tree.to.sql("spark"))
            except EblaError:
                return None
        case exp.Count():
            return "bigint"
        case _:
            return None


def place(text: str, identifier: exp.Expr) -> int:
    """Where an identifier stands. Its token's place is believed only if the text has the name there."""
    start, end = identifier.meta.get("start"), identifier.meta.get("end")
    if start is not None and end is not None and unquote_name(text[start : end + 1]) == identifier.name:
        return int(start)
    tokens = (t for t in lex(text) if t.kind in (Kind.WORD, Kind.QUOTED))
    return next((t.start for t in tokens if unquote_name(t.text).lower() == identifier.name.lower()), 0)


_UNITS = frozenset(
    unit + plural
    for unit in words("year quarter month week day dayofyear hour minute second millisecond microsecond")
    for plural in ("", "s")
)
_COMPARISONS = (exp.EQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NEQ)
_UNUSUAL = ("pivots", "match", "connect", "into", "sample", "joins")
_FAMILIES = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "float", "double", "decimal"), "number"),
    **dict.fromkeys(("string", "varchar", "char"), "string"),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "time"),
    "boolean": "boolean",
    "binary": "binary",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An issue whose place is a position in the query's text."""

    code: Code
    at: int
    message: str
    hint: str


def resolve(text: str, inputs: Mapping[str, RelationFacts]) -> tuple[Outputs, list[Finding]]:
    """The columns of a query over these inputs (by name in lower case), and what is wrong with the names in it.

    A system table is an input by its full name, `system.history`.
    """
    try:
        if any(token.key == "|>" for token in lex(text)):
            return None, []  # sqlglot rewrites pipes, and places are lost
        tree = sqlglot.parse_one(text, dialect="spark")
        if not isinstance(tree, exp.Query):
            return None, []
        resolver = Resolver(text, inputs)
        return resolver.query(tree, {}, None), resolver.findings
    except (SqlglotError, RecursionError, AttributeError, KeyError, TypeError, ValueError):
        # Text that is no query makes trees that lack parts; sqlglot itself stumbles over them.
        return None, []


def family(kind: str | None) -> str | None:
    """Types of one family compare without surprises."""
    return None if kind is None else _FAMILIES.get(kind.partition("(")[0])


class Resolver:
    def __init__(self, text: str, inputs: Mapping[str, RelationFacts]) -> None:
        self._text = text
        self._inputs = inputs
        self.findings: list[Finding] = []

    # ---- queries ----------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, ctes: Mapping[str, Outputs], outer: Scope | None) -> Outputs:
        ctes = self._with(tree, ctes, outer)
        match tree:
            case exp.Subquery():
                return self.query(tree.this, ctes, outer)
            case exp.SetOperation():
                left, right = self.query(tree.this, ctes, outer), self.query(tree.expression, ctes, outer)
                if left is None or right is None or len(left) != len(right) or tree.args.get("by_name"):
                    return None
                pairs = zip(left, right, strict=True)
                return tuple(replace(a, type=a.type if a.type == b.type else None) for a, b in pairs)
            case exp.Select():
                return self._select(tree, ctes, outer)
            case _:
                return None

    def _with(self, tree: exp.Expr, ctes: Mapping[str, Outputs], outer: Scope | None) -> Mapping[str, Outputs]:
        with_ = tree.args.get("with_") or tree.args.get("with")
        if with_ is None:
            return ctes
        ctes = dict(ctes)
        for cte in with_.expressions:
            name, names = cte.alias.lower(), _column_names(cte)
            named = tuple(Output(name=n) for n in names) if names else None
            if with_.args.get("recursive"):
                self.query(cte.this, {**ctes, name: named}, outer)
                ctes[name] = named
            else:
                found = columns_of(self.query(cte.this, ctes, outer), names)
                ctes[name] = None if found is None else tuple(found.values())
        return ctes

    def _select(self, tree: exp.Select, ctes: Mapping[str, Outputs], outer: Scope | None) -> Outputs:
        scope = Scope(ctes=ctes, outer=outer)
        conditions = self._from(tree, scope)
        scope.aliases = {a.alias.lower() for a in tree.expressions if isinstance(a, exp.Alias)} | {
            i.name.lower() for a in tree.expressions if isinstance(a, exp.Aliases) for i in a.expressions
        }
        where = tree.args.get("where")
        conditions += [where.this] if where is not None else []
        for condition in conditions:
            self.expression(condition, scope, aliases=False)
            self._comparisons(condition, scope)
        for projection in tree.expressions:
            self.expression(projection, scope, aliases=True)
        for name in ("group", "having", "qualify", "order", "sort", "cluster", "distribute"):
            clause = tree.args.get(name)
            if clause is not None:
                # These look at the result first, where a name may be free of what is ambiguous below.
                self.expression(clause, scope, aliases=True, ambiguous=name == "group")
        for window in tree.args.get("windows") or []:
            self.expression(window, scope, aliases=True)
        return outputs(self._text, tree, scope)

    # ---- FROM -------------------------------------------------------------------------------------------

    def _from(self, tree: exp.Select, scope: Scope) -> list[exp.Expr]:
        """Fill the scope; returns the conditions of joins."""
        conditions = []
        scope.blind = any(tree.args.get(a) for a in _UNUSUAL if a != "joins")
        from_ = tree.args.get("from_") or tree.args.get("from")
        if from_ is not None:
            self.relation(from_.this, scope)
        for join in tree.args.get("joins") or []:
            self.relation(join.this, scope, hidden=(join.kind or "").upper() in ("SEMI", "ANTI"))
            scope.merged |= {i.name.lower() for i in join.args.get("using") or []}
            scope.merges_all |= (join.method or "").upper() == "NATURAL"
            if join.args.get("on") is not None:
                conditions.append(join.args["on"])
        for lateral in tree.args.get("laterals") or []:
            self.expression(lateral.this, scope, aliases=False)
            self.relation(lateral, scope)
        return conditions

    def relation(self, tree: exp.Expr, scope: Scope, *, hidden: bool = False) -> None:
        alias = tree.alias.lower() or None
        if any(tree.args.get(a) for a in _UNUSUAL if a != "sample"):
            scope.blind = True
            return
        names = _column_names(tree)
        columns: Mapping[str, Output] | None = None
        label = tree.alias
        match tree:
            case exp.Table(this=exp.Identifier()) if not tree.db or tree.db.lower() == "system":
                low, name = tree.name.lower(), f"{tree.db}.{tree.name}" if tree.db else tree.name
                alias = alias or low
                label = name if alias == low else f"{name} {tree.alias}"
                outputs = scope.ctes[low] if low in scope.ctes and not tree.db else self._input(name.lower())
                columns = columns_of(outputs, names)
            case exp.Subquery(this=exp.Select() | exp.SetOperation()):
                columns = columns_of(self.query(tree, scope.ctes, scope.outer), names)
            case exp.Lateral() if tree.args.get("view") and names:
                columns = columns_of(None, names)
            case exp.Values() if names:
                columns = columns_of(None, names)
            case exp.Table() | exp.Lateral() | exp.Values():
                pass  # a table function, a lateral subquery: Spark knows its columns
            case _:
                scope.blind = True
        scope.sources.append(Source(alias=alias, columns=columns, label=label or "the subquery", hidden=hidden))

    def _input(self, name: str) -> Outputs:
        relation = self._inputs.get(name)
        if relation is None or relation.columns is None:
            return None
        return tuple(Output(name=n, type=kind) for n, kind in relation.columns.items())

    # ---- expressions ------------------------------------------------------------------------------------

    def expression(
        self,
        tree: exp.Expr,
        scope: Scope,
        *,
        aliases: bool,
        ambiguous: bool = True,
        bound: frozenset[str] = frozenset(),
    ) -> None:
        match tree:
            case exp.Column():
                if tree.parts[0].name.lower() not in bound:
                    self._column(tree, scope, aliases=aliases, ambiguous=ambiguous)
                return
            case exp.Query():
                self.query(tree, scope.ctes, scope)
                return
            case exp.Lambda():
                bound |= {i.name.lower() for i in tree.expressions}
            case exp.Star():
                return  # EXCEPT and the like name columns of the result
            case exp.Anonymous() if tree.name.lower() == "identifier":
                return
            case exp.Func() if tree.sql_name().lower() in LITERALS:
                self._literal_function(tree.sql_name().lower(), scope)
        for child in tree.iter_expressions():
            if isinstance(tree, exp.Func) and isinstance(child, exp.Column) and child.name.lower() in _UNITS:
                continue  # `dateadd(DAY, …)` where sqlglot does not know the function
            self.expression(child, scope, aliases=aliases, ambiguous=ambiguous, bound=bound)

    def _column(self, column: exp.Column, scope: Scope, *, aliases: bool, ambiguous: bool) -> None:
        if isinstance(column.this, exp.Star):
            self._star(column, scope)
            return
        parts = column.parts
        names = [p.name.lower() for p in parts]
        found = scope.find(names, aliases=aliases)
        # A result's own name wins in ORDER BY and the like.
        own = aliases and names[0] in scope.aliases
        written = ".".join(p.name for p in parts)
        match found.answer:
            case Answer.AMBIGUOUS if ambiguous and not own:
                having = ", ".join(s.label for s in found.sources)
                hint = f"write {found.sources[0].alias or 'alias'}.{parts[-1].name}, or another alias in its place"
                self.add(Code.AMBIGUOUS_COLUMN, parts[0], f"expected one {written}, found it in {having}", hint)
            case Answer.NO_COLUMN:
                self._no_column(parts[1], found)
            case Answer.NOTHING:
                self._nothing(parts, scope)

    def _no_column(self, identifier: exp.Expr, found: FoundColumn) -> None:
        source = found.sources[0]
        hint = did_you_mean(identifier.name, _spelled(found.sources), f"columns of {source.label}")
        message = f"expected a column of {source.label}, found {identifier.name}"
        self.add(Code.UNKNOWN_COLUMN, identifier, message, hint)

    def _nothing(self, parts: Sequence[exp.Expr], scope: Scope) -> None:
        first = parts[0]
        name = first.name.lower()
        if name.startswith("_") or name in ("grouping__id", "all") or not all(_is_placed(p) for p in parts):
            return
        if name == "system" and len(parts) > 2:
            return  # `system.history.version`, or a variable of the session
        every = [s for one in scope.chain() for s in one.sources]
        if len(parts) > 1:
            aliases = [s.alias for s in every if s.alias]
            message = f"expected the name of a table in FROM before .{parts[1].name}, found {first.name}"
            self.add(Code.UNKNOWN_ALIAS, first, message, did_you_mean(first.name, aliases, "tables in FROM"))
        elif name in LITERALS:
            self.add(Code.NOT_DETERMINISTIC, first, *described(first.name))
        else:
            labels = " or ".join(dict.fromkeys(s.label for s in scope.sources)) or "a table; there is no FROM"
            hint = did_you_mean(first.name, _spelled(every), "columns")
            if name in scope.aliases:
                hint = "WHERE and ON do not see the names that SELECT gives: repeat the expression"
            self.add(Code.UNKNOWN_COLUMN, first, f"expected a column of {labels}, found {first.name}", hint)

    def _literal_function(self, name: str, scope: Scope) -> None:
        """`current_date` without parentheses, if no column has that name. Calls with them are found by `chance`."""
        if scope.find([name], aliases=True).answer is not Answer.NOTHING:
            return
        tokens = lex(self._text)
        for before, token, after in zip([None, *tokens], tokens, tokens[1:], strict=False):
            plain = after.key not in ("(", ".") and (before is None or before.key not in (".", "AS"))
            if token.kind is Kind.WORD and token.text.lower() == name and plain:
                message, hint = described(name)
                self.findings.append(Finding(code=Code.NOT_DETERMINISTIC, at=token.start, message=message, hint=hint))

    def _star(self, column: exp.Column, scope: Scope) -> None:
        name = column.parts[0]
        if isinstance(name, exp.Star):
            return
        found = scope.find([name.name.lower()], aliases=True)
        aliases = [s.alias for one in scope.chain() for s in one.sources if s.alias]
        if found.answer is Answer.NOTHING and name.name.lower() not in aliases and len(column.parts) == 2:
            message = f"expected the name of a table in FROM before .*, found {name.name}"
            self.add(Code.UNKNOWN_ALIAS, name, message, did_you_mean(name.name, aliases, "tables in FROM"))

    def add(self, code: Code, identifier: exp.Expr, message: str, hint: str) -> None:
        self.findings.append(Finding(code=code, at=place(self._text, identifier), message=message, hint=hint))

    # ---- types ------------------------------------------------------------------------------------------

    def _comparisons(self, condition: exp.Expr, scope: Scope) -> None:
        for one in _conjuncts(condition):
            if not isinstance(one, _COMPARISONS):
                continue
            left, right = one.this, one.expression
            if not isinstance(left, exp.Column) or not isinstance(right, exp.Column):
                continue
            ours, theirs = type_of(left, scope), type_of(right, scope)
            if family(ours) is None or family(theirs) is None or family(ours) == family(theirs):
                continue
            message = f"expected types that compare as they are, found {left.sql()} {ours} and {right.sql()} {theirs}"
            hint = "give both columns the same type, or say what is meant with CAST"
            self.add(Code.JOIN_TYPE, left.parts[0], message, hint)


def _column_names(tree: exp.Expr) -> list[str]:
    alias = tree.args.get("alias")
    return [c.name for c in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []


def _is_placed(part: exp.Expr) -> bool:
    """A name that sqlglot made up has no place."""
    return "start" in part.meta


def _spelled(sources: Sequence[Source]) -> list[str]:
    return [o.name for s in sources for o in (s.columns or {}).values() if o.name is not None]


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.this)
        yield from _conjuncts(condition.expression)
    else:
        yield condition
