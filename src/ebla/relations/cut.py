"""By which columns a refresh cuts a view: those of its key whose values no dictionary decides.

Any columns would give a view that follows its equation (`ebla.model.refresh`). These keep a row, or a group, on one
side of the position whatever the dictionaries say, so that a reader sees it once. A view that is driven by its base is
cut by the base's key: all that comes of one row of the base moves together. Any other is cut by the columns of its key
that come from streams alone, such as those that groups are formed by. A view without such columns (a bag, groups by a
name that a dictionary gives) is refreshed in one chunk, as is one in which a dictionary's change cannot be followed to
them: every chunk would compute the whole view.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ebla.algebra.build_method import DrivenBuild, equal_values
from ebla.algebra.nodes import Branches, Join, Leaf, Node, Shape, Value, walk
from ebla.algebra.plan import of_scope
from ebla.model.relation import Relation
from ebla.relations.shapes import build_method, shape_of
from ebla.relations.views import View


def cut_of(view: View, relations: Mapping[str, Relation], batch: Collection[str]) -> tuple[str, ...] | str:
    """The columns of the cut; or why the view is refreshed in one chunk. `batch`: its dictionaries, in lower case."""
    shape, blocked = shape_of(view, relations)
    if shape is None:
        return f"its query is recomputed as a whole: {blocked}"
    if view.relation.keyless:
        return "it has no key"
    how = build_method(view, relations)
    if isinstance(how, DrivenBuild):
        return how.scope
    return by_streams(shape, [k.name for k in view.relation.key], batch)


def by_streams(shape: Shape, key: Collection[str], batch: Collection[str]) -> tuple[str, ...] | str:
    """Columns of the key that come from streams alone, if changes of all dictionaries can be followed to them."""
    same, outputs = equal_values(shape.root), dict(shape.outputs)
    found = tuple(
        name
        for name in key
        if name in outputs and any(_streamed(shape.root, v, batch) for v in same.get(outputs[name], {outputs[name]}))
    )
    if not found:
        return "dictionaries decide on all columns of its key"
    for some in (found, *((name,) for name in found)):
        if of_scope(shape, batch, some) is not None:
            return some
    return f"a change of {', '.join(sorted(batch))} cannot be followed to ({', '.join(found)})"


def _streamed(root: Node, value: Value, batch: Collection[str]) -> bool:
    """Whether a value is that of a column of a stream, wherever it comes from. One that is computed is not."""
    for node in walk(root):
        match node:
            case Leaf(table=table, columns=columns) if value in columns:
                return table not in batch
            case Join(fused=fused, pairs=pairs) if value in fused:
                return all(_streamed(node, side, batch) for side in pairs[fused.index(value)])
            case Branches(children=children, outputs=outputs) if value in outputs:
                places = range(len(children))
                return all(_streamed(children[i], node.into(i, (value,))[0], batch) for i in places)
            case _:
                pass
    return False
