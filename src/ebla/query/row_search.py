"""Rows from sorted streams: batches of them, whole in the order of the request, until there are enough."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa

from ebla.predicates import filters as fl
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath
from ebla.query import plan as planning
from ebla.query.fetch import fetch
from ebla.query.overlay import Place, Source
from ebla.query.plan import Plan
from ebla.query.streams import Item, Seek, TooMany
from ebla.storage import runs as rf
from ebla.storage.layers import Key
from ebla.storage.store import single


class RowSearch:
    """One search of one plan."""

    def __init__(self, base: tuple[Source, AccessPath], chosen: Plan, seek: Seek) -> None:
        """`base`: where whole rows are found by their keys."""
        self._base, self._base_path = base
        self._request = chosen.request
        self._fitted = chosen.fitted
        self._seek = seek
        order = () if self._request.any_order else tuple(by.column for by in self._request.order)
        used = (*self._request.columns, *order, *(f.column for f in self._fitted.late))
        self._wanted = list({column.physical: column for column in used}.values())

    def rows(self) -> pa.Table:
        want = self._request.limit + 1
        items = self._seek.rows(in_order=not self._request.any_order, likely=want)
        parts: list[pa.Table] = []
        count, read, ended = 0, 0, False
        held: Item | None = None
        while not ended and count < want:
            batch, held, ended = self._batch(items, held, want - count)
            read += len(batch)
            if self._fitted.late and read > planning.FETCHED_MAX:
                raise TooMany
            part = self._settled(batch)
            parts.append(part)
            count += part.num_rows
        joined = pa.concat_tables(parts) if parts else rf.physical_schema(self._wanted).empty_table()
        return joined.slice(0, want)

    def _batch(self, items: Iterator[Item], held: Item | None, least: int) -> tuple[list[Item], Item | None, bool]:
        """At least this many rows, and in an order that is not exact all that are equal to the last of them.

        Also the row that was read too far, and whether there are no more. In an exact order none is read too far: the
        next one may cost a whole batch of lookups.
        """
        found: list[Item] = [] if held is None else [held]
        if self._fitted.exact:
            found += itertools.islice(items, least - len(found))
            return found, None, len(found) < least
        for item in items:
            if len(found) >= least and item[0] != found[-1][0]:
                return found, item, False
            found.append(item)
            if len(found) > planning.COLLECTED_MAX:
                raise TooMany
        return found, None, True

    def _settled(self, batch: Sequence[Item]) -> pa.Table:
        """The batch's columns, without rows that late conditions or the last page leave out, in order."""
        places = [place for _, _, place, _ in batch]
        if self._fitted.covering:
            table = self._seek.taken(places, self._wanted)
        else:
            stored = [column for column in self._wanted if not planning.is_expression(column.physical)]
            table = fetch(self._base, self._base_path, self._keys(batch, places), stored)
            made = [column for column in self._wanted if planning.is_expression(column.physical)]
            if made:
                for column, array in zip(made, self._seek.taken(places, made).columns, strict=True):
                    table = table.append_column(column.physical, array)
        if self._fitted.late and table.num_rows:
            columns = {f.column.physical: single(table.column(f.column.physical)) for f in self._fitted.late}
            table = table.filter(fl.mask(self._fitted.late, columns))
        return table if self._fitted.exact else self._sorted(table)

    def _keys(self, batch: Sequence[Item], places: Sequence[Place]) -> Sequence[Key]:
        """Which rows of the base they are: mostly what was asked of level 0."""
        key = self._base_path.relation.key
        if [column.base for column in self._fitted.path.identity] == [column.physical for column in key]:
            names = [name for *_, name in batch]
            if all(names):
                return names
        keys = self._seek.taken(places, key)
        return list(zip(*(v.plain(single(keys.column(k.physical))).to_pylist() for k in key), strict=True))

    def _sorted(self, table: pa.Table) -> pa.Table:
        order = self._request.order
        if table.num_rows == 0:
            return table
        ranked = []
        for by in order:
            ranker = v.ranker(by.descending)
            values = v.plain(single(table.column(by.column.physical))).to_pylist()
            ranked.append([ranker(value) for value in values])
        rows = list(zip(*ranked, strict=True))
        wanted: Sequence[int] = range(len(rows))
        if self._request.after is not None:
            pairs = zip(order, self._request.after, strict=True)
            end = tuple(v.ranker(by.descending)(value) for by, value in pairs)
            wanted = [n for n in wanted if end < rows[n]]
        return table.take(pa.array(sorted(wanted, key=rows.__getitem__), pa.int64()))
