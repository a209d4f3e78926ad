"""Level 0 read in its files against a dictionary: rows in order and rows by key, of a table and of an index."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from ebla.model.relation import Relation
from ebla.predicates import conditions as c
from ebla.predicates import values as v
from ebla.predicates.access import base_path
from ebla.query.fetch import fetch
from ebla.query.plan import fit
from ebla.query.streams import Seek
from ebla.storage.layers import Key
from support.level0 import INDEX, KEYS, ROWS, TABLE, TABLETS, Level0, keys_of, newest_of, path_of, store_of

EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "40"))
STEPS = st.lists(
    st.tuples(st.sampled_from(["span", "span without tokens", "tablets", "tablets"]), ROWS)
    | st.tuples(st.just("fold"), st.integers(0, TABLETS - 1)),
    min_size=1,
    max_size=8,
)
LIVE = st.dictionaries(KEYS, st.integers(0, 999), max_size=12)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    bottom=LIVE,
    steps=STEPS,
    down=st.sets(st.sampled_from(["f", "s", "b", "x"])),
    rows_max=st.sampled_from([0, 5, 20]),
    backwards=st.booleans(),
    least=st.none() | st.integers(0, 999),
    likely=st.sampled_from([1, 3, 200]),
)
def test_rows_come_in_order_from_files_and_layers(bottom, steps, down, rows_max, backwards, least, likely):
    for relation in (TABLE, INDEX):
        with TemporaryDirectory() as folder:
            sorted_down = [column.physical for column in relation.key if column.physical in down]
            own = replace(relation, options={**relation.options, "descending": sorted_down})
            level0, store = Level0(Path(folder), own), store_of()
            level0.begin(bottom)
            for step in steps:
                _do(level0, *step)
                snapshot = level0.snapshot()
                wanted = {k: x for k, x in level0.expected(snapshot).items() if x is not None}
                source = level0.source(snapshot, store, rows_max)
                _in_order(source, own, wanted, backwards, least, likely)
                if relation is TABLE:
                    _by_key(source, own, wanted)
                    _in_any_order(source, own, wanted, _asked(step))


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps=STEPS, rows_max=st.sampled_from([0, 5, 20]), asked=st.sets(KEYS, min_size=1, max_size=12))
def test_the_newest_mutation_of_each_key_is_found_in_files_and_in_memory(steps, rows_max, asked):
    with TemporaryDirectory() as folder:
        level0 = Level0(Path(folder))
        for step in steps:
            _do(level0, *step)
            written = level0.expected(level0.snapshot())
            wanted = sorted({*asked, *_asked(step)}, key=repr)
            assert newest_of(level0, wanted, rows_max) == {key: written[key] for key in wanted if key in written}


def _do(level0: Level0, what: str, argument: Any) -> None:
    match what:
        case "fold":
            level0.fold(argument)
        case "tablets":
            level0.append_tablets(argument)
        case _:
            level0.append(argument, with_tokens=what == "span")


def _in_order(
    source: Any, relation: Relation, wanted: dict[Key, int], backwards: bool, least: int | None, likely: int
) -> None:
    """`likely`: about how many rows are wanted, which says how many are looked up at a time."""
    path = path_of(relation, *relation.descending)
    signs = ["-" if column.descending != backwards else "" for column in path.key]
    where = {} if least is None else {"x": c.Range(least, None)}
    request = c.request(
        relation, where=where, order_by=[sign + k.path for sign, k in zip(signs, path.key, strict=True)]
    )
    fitted = fit(path, request)
    assert fitted is not None
    seek = Seek(source, fitted, request.order)
    seek.selection.extent()
    assert seek.selection.division.seekable
    event(f"{relation.name}: {len(seek.overlay.files)} files, {len(seek.overlay.layers)} layers")
    found = seek.taken([place for _, _, place, _ in seek.rows(in_order=True, likely=likely)], relation.columns)

    def ranks(key: Key) -> Any:
        row = dict(zip(("f", "s", "b", "x"), (*key, wanted[key]), strict=True))
        return tuple(v.ranker(k.descending != backwards)(row[k.path]) for k in path.key)

    alive = sorted((k for k, x in wanted.items() if least is None or x >= least), key=ranks)
    assert keys_of(found) == alive
    assert found["x"].to_pylist() == [wanted[k] for k in alive]


def _asked(step: tuple[str, Any]) -> list[Key]:
    return [] if step[0] == "fold" else list(step[1])[:3]


def _in_any_order(source: Any, relation: Relation, wanted: dict[Key, int], keys: list[Key]) -> None:
    """Rows whose whole key is given, by a query without an order."""
    path = path_of(relation, *relation.descending)
    for key in keys:
        plain = c.request(relation, where={n: c.IsNull() if x is None else x for n, x in zip("fsb", key, strict=True)})
        request = replace(plain, any_order=True, order=())
        fitted = fit(path, request)
        assert fitted is not None
        seek = Seek(source, fitted, request.order)
        found = seek.taken([place for _, _, place, _ in seek.rows(in_order=False)], relation.columns)
        assert found["x"].to_pylist() == ([wanted[key]] if key in wanted else [])


def _by_key(source: Any, relation: Relation, wanted: dict[Key, int]) -> None:
    keys = sorted(wanted, key=repr)
    path = replace(base_path(relation), key=path_of(relation, *relation.descending).key)
    found = fetch(source, path, keys, relation.columns)
    assert keys_of(found) == keys
    assert found["x"].to_pylist() == [wanted[k] for k in keys]
