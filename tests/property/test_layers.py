"""Level 0 merged in memory against a dictionary: whatever was written and folded, whichever layers were kept."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import event, given, settings
from hypothesis import strategies as st

from ebla.model.snapshot import Snapshot
from ebla.predicates import conditions as c
from ebla.predicates.access import AccessPath
from ebla.query.plan import fit
from ebla.query.streams import Seek
from ebla.storage.layers import Key
from ebla.storage.store import Store
from support.level0 import KEYS, ROWS, TABLE, TABLETS, Level0, keys_of, path_of, ranks, store_of

EXAMPLES = int(os.environ.get("EBLA_EXAMPLES", "100"))
STEPS = st.lists(
    st.tuples(st.just("append"), ROWS, st.booleans())
    | st.tuples(st.just("append"), ROWS, st.booleans())
    | st.tuples(st.just("fold"), st.integers(0, TABLETS - 1), st.just(False))
    | st.tuples(st.just("fold all"), st.none(), st.just(False)),
    min_size=1,
    max_size=12,
)
DOWN = st.sets(st.sampled_from(["f", "s", "b"]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    steps=STEPS,
    down=DOWN,
    backwards=st.booleans(),
    kept=st.sampled_from([0, 5_000, 2**28]),
    back=st.integers(0, 12),
    key=KEYS,
)
def test_layers_come_to_the_last_mutation_of_each_key(steps, down, backwards, kept, back, key):
    with TemporaryDirectory() as folder:
        level0, path = Level0(Path(folder)), path_of(TABLE, *down)
        store = store_of(kept)
        for what, argument, with_tokens in steps:
            if what == "append":
                level0.append(argument, with_tokens=with_tokens)
            else:
                for tablet in range(TABLETS) if what == "fold all" else [argument]:
                    level0.fold(tablet)
            _agree(level0, store, path, level0.snapshot(), backwards, key)
        _agree(level0, store, path, level0.snapshot(max(0, level0.version - back)), backwards, key)


def _agree(level0: Level0, store: Store, path: AccessPath, snapshot: Snapshot, backwards: bool, key: Key) -> None:
    wanted = level0.expected(snapshot)
    signs = ["-" if column.descending != backwards else "" for column in path.key]
    request = c.request(TABLE, order_by=[sign + column.path for sign, column in zip(signs, path.key, strict=True)])
    fitted = fit(path, request)
    assert fitted is not None
    assert (fitted.exact, fitted.backwards) == (True, backwards)
    seek = Seek(level0.source(snapshot, store), fitted, request.order)
    event(f"{len(seek.overlay.layers)} layers, {'uniform' if snapshot.uniform_cutoff else 'partly folded'}")

    places = [place for _, _, place, _ in seek.rows(in_order=True)]
    table = seek.taken(places, TABLE.columns)
    shown = dict(zip(keys_of(table), table["x"].to_pylist(), strict=True))
    alive = sorted((k for k, x in wanted.items() if x is not None), key=lambda k: ranks(k, path, backwards=backwards))
    assert keys_of(table) == alive
    assert shown == {k: wanted[k] for k in alive}
    assert seek.overlay.hides(key) == (key in wanted)
    assert all(seek.overlay.hides(k) for k in wanted)
    assert sum(len(layer.keys) for layer in seek.overlay.layers) <= sum(run.rows for run in snapshot.level0)
