"""Which output columns name a row of a view: its key, where the query implies one.

Keys of the sources, less those that a join on a full key fixes; the columns of a grouping; all columns of a distinct
result. A view whose outputs do not show such columns is a bag, and its rows carry a hidden row id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from ebla.algebra.nodes import Branches, Group, Join, JoinKind, Leaf, Node, Pass, Shape, Value


def view_key(shape: Shape, keys: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The output columns that identify a row; empty if the query implies none that are shown."""
    found = identity(shape.root, keys)
    if not found:
        return ()
    names: dict[Value, str] = {}
    for name, value in shape.outputs:
        names.setdefault(value, name)
    if not found <= set(names):
        return ()
    return tuple(name for name, value in shape.outputs if value in found and names[value] == name)


def identity(node: Node, keys: Mapping[str, Sequence[str]]) -> frozenset[Value] | None:
    """Values that no two rows of the node share, or `None`."""
    match node:
        case Leaf(table=table, columns=columns):
            key = keys.get(table, ())
            found = frozenset(v for v, name in columns.items() if name in key)
            return found if key and len(found) == len(key) else None
        case Pass(child=child, multiplies=multiplies):
            return None if multiplies else identity(child, keys)
        case Group(child=child, by=by, keeps_rows=keeps, what=what):
            if not keeps or what in ("UNION", "INTERSECT", "EXCEPT"):
                return by or None
            return identity(child, keys)
        case Branches():
            return None
        case Join(kind=kind, left=left, right=right, pairs=pairs):
            ours, theirs = identity(left, keys), identity(right, keys)
            if kind in (JoinKind.SEMI, JoinKind.ANTI, JoinKind.NULL_AWARE_ANTI):
                return ours
            if ours is None or theirs is None:
                return None
            if kind in (JoinKind.INNER, JoinKind.LEFT) and theirs <= {b for _, b in pairs}:
                return ours
            if kind in (JoinKind.INNER, JoinKind.RIGHT) and ours <= {a for a, _ in pairs}:
                return theirs
            if kind is JoinKind.FULL and ours <= {a for a, _ in pairs} and theirs <= {b for _, b in pairs}:
                return frozenset(node.fused)
            return ours | theirs
        case _:
            assert_never(node)
