"""Values that the catalog keeps as JSON: what does not fit is named."""

from __future__ import annotations

import pytest

from ebla.base.ids import Version
from ebla.relations.indexes import Definition, Item, options
from ebla.relations.stored_values import read, read_text
from ebla.relations.views import Position

ITEM = Item(text="a", physical="a", is_expression=True, descending=False)
STORED = options([ITEM], ["b"], "a > 1", unique=True, placed_by=["id"], settings={"zone": "UTC"})


def test_a_definition_of_an_index_is_read_as_it_was_stored():
    found = read(Definition, STORED)
    assert found == Definition(items=(ITEM,), include=("b",), where="a > 1", unique=True, settings={"zone": "UTC"})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"items": [{"text": "a"}]}, "items.0.physical: Field required; items.0.expression: Field required"),
        ({"unique": "perhaps"}, "unique: Input should be a valid boolean"),
        ({"include": None}, "include: Input should be a valid tuple"),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, object], says: str):
    with pytest.raises(ValueError, match=says):
        read(Definition, {**STORED, **changed})


def test_a_position_of_an_older_release_has_the_defaults_of_newer_fields():
    assert Position.parse('{"applied_version": 7, "read": {"t": 7}}') == Position(
        applied_version=Version(7), read={"t": 7}
    )
    with pytest.raises(ValueError, match="read: Field required"):
        read_text(Position, '{"applied_version": 7}')
