"""What is known of a query that can be a view: its columns and key, how it is built, how its changes are followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ebla.algebra.build_method import BuildMethod, driving
from ebla.algebra.merge import Sketch
from ebla.algebra.nodes import Shape
from ebla.algebra.plan import EpochPlan, FullRefresh, TailPlan, plan, settled
from ebla.algebra.shape import keys_of
from ebla.model.relation import HIDDEN_KEY, Column, Relation
from ebla.validate import RelationFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewAnalysis:
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

    def build_method(self, names: Sequence[str]) -> BuildMethod:
        """Whether the view is built in chunks; `names` are its inputs in the order of the text."""
        merges = self.drawn is not None
        if self.shape is None:
            return driving(None, names, self.relations, self.columns, merges=merges)
        visible = (column.name for column in self.columns if not column.hidden)
        outputs = tuple(zip(visible, (value for _, value in self.shape.outputs), strict=True))
        return driving(replace(self.shape, outputs=outputs), names, self.relations, self.columns, merges=merges)

    def plans(self) -> dict[str, EpochPlan]:
        """What an epoch does after a change of each input alone."""
        if self.shape is None:
            return {n: FullRefresh(reason=self.blocked or "") for n in self.relations}
        merges, keys = self.drawn is not None, keys_of(self.relations)
        found = {n: plan(self.shape, [n], keys, merges=merges) for n in self.relations}
        kinds = [column.type for column in self.columns if not column.hidden]
        types = {name: kind for (name, _), kind in zip(self.shape.outputs, kinds, strict=True)}
        return {
            n: settled(made, types, self.settings) if isinstance(made, TailPlan) else made for n, made in found.items()
        }


def columns_of(view: RelationFacts, drawn: Sketch | None) -> tuple[Column, ...]:
    """The columns of the view's relation: those of the query, hidden ones of its groups, and a hidden key."""
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
