"""What an epoch computes from: the view's query as a tree, its inputs then and now, and its rows as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebla.algebra.nodes import Shape
from ebla.algebra.shape import keys_of
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.relations.shapes import shape_of, used_columns
from ebla.relations.views import View
from ebla.tables.read_access import ReadAccess
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.region import Region
from ebla.views.epoch.round import Round

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    inputs: Inputs
    evaluation: Evaluation
    stored: Snapshot
    """The view's own rows."""
    shape: Shape | None
    """The tree of the query; `None`: it is not understood (`blocked` says why)."""
    blocked: str | None = None

    @classmethod
    def read(
        cls,
        connection: Connection,
        round_: Round,
        view: View,
        relations: Mapping[str, Relation],
        *,
        before: Mapping[str, Version | None],
        now: Mapping[str, Version],
        region: Region | None = None,
        stored: Snapshot | None = None,
    ) -> Operands:
        """The inputs at their versions, and the view's own rows as they are unless they have been read."""
        shape, blocked = shape_of(view, relations)
        inputs = Inputs(
            round=round_,
            relations=relations,
            before=before,
            now={n: round_.snapshot(connection, r, now[n]) for n, r in relations.items()},
            used=used_columns(shape, relations),
            rows_max=round_.context.settings.batch_rows_max,
            settings=view.settings,
            region=region,
        )
        return cls(
            inputs=inputs,
            evaluation=Evaluation(view, inputs),
            stored=stored or reads.snapshot(connection, view.relation),
            shape=shape,
            blocked=blocked,
        )

    @property
    def view(self) -> View:
        return self.evaluation.view

    @property
    def context(self) -> ReadAccess:
        return self.inputs.context

    @property
    def keys(self) -> Mapping[str, Sequence[str]]:
        """The key of each input."""
        return keys_of(self.inputs.relations)
