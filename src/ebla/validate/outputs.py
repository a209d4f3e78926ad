"""The columns that a SELECT gives, as far as its text and the types of its sources tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from ebla.errors import EblaError
from ebla.sql.lex import Kind, lex, unquote_name
from ebla.validate.scope import Output, Outputs, Scope, Source
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
