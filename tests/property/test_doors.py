"""Stored or refused, never changed: every text of every type through every door that the driver has.

The grammar of texts says what a text is; each door must store exactly that, or refuse where the grammar refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ebla.errors import EblaError
from ebla.model.relation import Relation
from ebla.sql import literals as lit
from ebla.sql import statements
from ebla.sql.lex import quote_string
from ebla.sql.parse import parse as parse_sql
from ebla.tables.batch import ArrowBatch
from ebla.tables.csv_files import CsvFiles
from ebla.tables.json_files import JsonFiles, Range
from ebla.tables.literals import literal_batch
from ebla.values import texts, types
from ebla.values.grammar import Unfit, parse
from support.door_values import ATOMS, notable, text_of, texts_of, value_of
from support.relations import relation

Door = Callable[[Relation, str, str], pa.Array]
"""What a column of a relation stores of a text."""


def by_sql(table: Relation, sql_type: str, text: str) -> pa.Array:
    statement = parse_sql(f"INSERT INTO t VALUES (1, {quote_string(text)})")
    assert isinstance(statement, statements.Insert)
    made = literal_batch(statement, table, lit.Dialect())
    assert isinstance(made, ArrowBatch), "a string is a plain literal"
    return made.table.column(1).combine_chunks()


def by_csv(table: Relation, sql_type: str, text: str) -> pa.Array:
    reading = CsvFiles(relation=table, names=("id", "x"), how=texts.FILES)
    names = ["id", "x", "_ebla_corrupt", "_ebla_path"]
    found = pa.table([pa.array([one], pa.string()) for one in ("1", text, None, "nowhere.csv")], names=names)
    return reading.read(found).column(1).combine_chunks()


def by_json(table: Relation, sql_type: str, text: str) -> pa.Array:
    """As JSON would have it: a number or a truth bare, all else in quotes."""
    bare = json_number(text) if sql_type not in ("string", "binary", "date", "timestamp", "timestamp_ntz") else None
    return in_json(table, json.dumps(text) if bare is None else bare)


def in_json(table: Relation, written: str) -> pa.Array:
    folder: Path = FOLDER[0]
    file = folder / "one.json"
    file.write_bytes(f'{{"id": 1, "x": {written}}}\n'.encode("utf-8", "surrogatepass"))
    [made] = JsonFiles(relation=table).tables(Range(file=str(file)))
    return made.column(1).combine_chunks()


FOLDER: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    FOLDER[:] = [tmp_path_factory.mktemp("doors")]


def json_number(text: str) -> str | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return text if type(found) in (int, float) and text not in ("NaN", "Infinity", "-Infinity") else None


def expected(sql_type: str, text: str, how: texts.TextFormat) -> pa.Array | None:
    """What the grammar says; `None` if it refuses."""
    tree = parse(sql_type)
    try:
        return texts.as_array([texts.value(text, tree, how)], tree)
    except Unfit:
        return None


def stored(door: Door, table: Relation, sql_type: str, text: str) -> pa.Array | None:
    try:
        return door(table, sql_type, text)
    except EblaError:
        return None


def same(found: pa.Array | None, wanted: pa.Array | None) -> bool:
    """-0.0 is not 0.0, and NaN is NaN."""
    if found is None or wanted is None:
        return found is wanted
    shown = [repr(one.to_pylist()) if pa.types.is_floating(one.type) else str(one) for one in (found, wanted)]
    return found.type == wanted.type and shown[0] == shown[1]


def check_text(sql_type: str, text: str) -> None:
    table = relation("t", "id", "id int", f"x {sql_type}")
    wanted = expected(sql_type, text, texts.LITERALS)
    assert same(stored(by_sql, table, sql_type, text), wanted), f"sql: {text!r} into {sql_type}: expected {wanted}"
    wanted = expected(sql_type, text, texts.FILES)
    in_csv = pa.nulls(1, types.to_arrow(sql_type)) if text == "" and sql_type != "string" else wanted
    found = stored(by_csv, table, sql_type, text)
    assert same(found, in_csv), f"csv: {text!r} into {sql_type}: expected {in_csv}, found {found}"
    is_text = sql_type in ("string", "binary", "date", "timestamp", "timestamp_ntz") or sql_type.startswith("decimal")
    if is_text or texts.is_word(text) or json_number(text) is not None:
        is_word = texts.is_word(text) and sql_type not in ("float", "double") and not is_text
        wanted = None if is_word or (sql_type == "boolean") else wanted
        found = stored(by_json, table, sql_type, text)
        assert same(found, wanted), f"json: {text!r} into {sql_type}: expected {wanted}, found {found}"


@pytest.mark.parametrize("sql_type", ATOMS)
def test_notable_texts_are_the_same_at_every_door(sql_type: str):
    for text in notable(sql_type):
        check_text(sql_type, text)


@pytest.mark.parametrize("sql_type", ATOMS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_texts_are_the_same_at_every_door(sql_type: str, data: st.DataObject):
    check_text(sql_type, data.draw(texts_of(sql_type)))


@pytest.mark.parametrize("sql_type", ATOMS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_value_comes_in_as_it_is_by_every_door(sql_type: str, data: st.DataObject):
    """Python's value, Arrow's, and the texts that say it."""
    value = data.draw(value_of(sql_type))
    table = relation("t", "id", "id int", f"x {sql_type}")
    column = [c for c in table.visible if c.name == "x"]
    wanted = types.from_rows([{"x": value}], column, relation="t").column(0).combine_chunks()
    assert same(types.fit(pa.table({"x": wanted}), column, relation="t").column(0).combine_chunks(), wanted)
    text = text_of(value)
    assert same(stored(by_csv, table, sql_type, text), wanted) or (text == "" and sql_type == "binary")
    if sql_type != "binary":
        assert same(stored(by_sql, table, sql_type, text), wanted)
    if sql_type != "boolean":
        assert same(stored(by_json, table, sql_type, text), wanted)


# ---- nested ---------------------------------------------------------------------------------------------


PAIRS = st.lists(st.tuples(st.sampled_from(["a", "b", "A", ""]), st.integers(-5, 5)), max_size=4)


@given(PAIRS)
def test_a_map_names_each_key_once_at_every_door(pairs: list[tuple[str, int]]):
    table = relation("t", "id", "id int", "x map<string,int>")
    column = [c for c in table.visible if c.name == "x"]
    unique = len({key for key, _ in pairs}) == len(pairs)
    arrow = pa.array([pairs], pa.map_(pa.string(), pa.int32()))
    written = "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in pairs) + "}"
    doors: list[Callable[[], Any]] = [
        lambda: types.fit(pa.table({"x": arrow}), column, relation="t").column(0).combine_chunks(),
        lambda: types.from_rows([{"x": pairs}], column, relation="t").column(0).combine_chunks(),
        lambda: in_json(table, written),
    ]
    for door in doors:
        if unique:
            assert door().equals(arrow)
        else:
            with pytest.raises(EblaError, match="twice"):
                door()


@pytest.mark.parametrize(
    ("sql_type", "pairs"),
    [
        ("map<double,int>", [(float("nan"), 1), (float("nan"), 2)]),
        ("map<double,int>", [(0.0, 1), (-0.0, 2)]),
        ("map<array<int>,int>", [([1], 1), ([1], 2)]),
        ("map<int,int>", [(1, 1), (1, 2)]),
    ],
)
def test_keys_that_are_one_key(sql_type: str, pairs: list[tuple[Any, int]]):
    column = [c for c in relation("t", "id", "id int", f"x {sql_type}").visible if c.name == "x"]
    with pytest.raises(EblaError, match="twice"):
        types.from_rows([{"x": pairs}], column, relation="t")
    nested = relation("t", "id", "id int", f"x array<struct<m:{sql_type}>>")
    with pytest.raises(EblaError, match="twice"):
        types.from_rows([{"x": [{"m": pairs}]}], [c for c in nested.visible if c.name == "x"], relation="t")


def test_texts_that_are_one_key_of_a_map():
    table = relation("t", "id", "id int", "x map<int,int>")
    assert in_json(table, '{"1": 1, "2": 2}').to_pylist() == [[(1, 1), (2, 2)]]
    with pytest.raises(EblaError, match="twice"):
        in_json(table, '{"1": 1, "01": 2}')
