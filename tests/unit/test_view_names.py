"""Names in a view's query lead to the columns that the relations store, however the text spells them."""

from __future__ import annotations

import pytest

from ebla.algebra.direct_query import direct
from ebla.algebra.follow import ChangedValues
from ebla.algebra.nodes import NotUnderstood, leaves
from ebla.algebra.plan import FullRefresh, IncrementalPlan, plan
from ebla.algebra.shape import shape
from ebla.sql.refs import find

TABLES = {
    "w": {"W_ID": "int", "Größe": "string"},
    "d": {"D_ID": "int", "D_W_ID": "int", "group by": "string"},
}
KEYS = {"w": ["W_ID"], "d": ["D_ID"]}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT w.W_ID, d.D_ID FROM w CROSS JOIN d WHERE d.D_W_ID = w.W_ID",
        "SELECT W.w_id, D.d_id FROM W JOIN D ON D.d_w_Id = W.w_ID",
        "WITH p (A) AS (SELECT W_ID FROM w), q (A, B) AS (SELECT D_W_ID, D_ID FROM d) "
        "SELECT p.A, q.b FROM p FULL JOIN q ON p.a = q.A",
        "WITH p (A) AS (SELECT W_ID FROM w), q (A, B) AS (SELECT D_W_ID, D_ID FROM d) "
        "SELECT a, b FROM p FULL JOIN q USING (A)",
        "SELECT w_id, `GRÖSSE` FROM (SELECT W_ID, `größe` AS `Grösse` FROM w)",
        "SELECT d_id, `GROUP BY` FROM d WHERE `Group By` = 'x'",
    ],
)
def test_plans_speak_of_stored_names(text: str) -> None:
    query = find(text)
    understood = shape(query, TABLES)
    stored = {table: set(columns) for table, columns in TABLES.items()}
    for leaf in leaves(understood.root):
        assert set(leaf.columns.values()) == stored[leaf.table]
    for table, used in understood.used.items():
        assert used <= stored[table]
    for table in {ref.name.lower() for ref in query.refs}:
        made = plan(understood, [table], KEYS)
        assert not isinstance(made, FullRefresh)
        if isinstance(made, IncrementalPlan):
            starts = [one.values for one in made.affected]
            assert all(set(s.columns) <= stored[s.table] for s in starts if isinstance(s, ChangedValues))


def test_rows_on_the_driver_are_asked_for_by_stored_names() -> None:
    """DuckDB folds the letters of ASCII alone, so that `größe` is not the column `GRÖSSE` of the rows."""
    made = direct(find("SELECT `grösse` AS g FROM t"), {"t": {"GRÖSSE": "string"}}, ["string"], {})
    assert made is not None
    assert '"GRÖSSE"' in made.sql


SENSITIVE = "SELECT s.a FROM (SELECT W_ID AS A, `Größe` AS a FROM w) s"


def test_names_that_differ_by_case_alone_stay_apart_where_the_session_tells_them_apart() -> None:
    (_, value), *_ = shape(find(SENSITIVE), TABLES, case_sensitive=True).outputs
    (leaf,) = leaves(shape(find(SENSITIVE), TABLES, case_sensitive=True).root)
    assert leaf.columns[value] == "Größe"
    with pytest.raises(NotUnderstood):
        shape(find("SELECT w_id FROM w"), TABLES, case_sensitive=True)


def test_sources_of_one_name_are_not_confused() -> None:
    text = "SELECT X.W_ID FROM w X JOIN d x ON x.D_W_ID = X.W_ID"
    assert shape(find(text), TABLES, case_sensitive=True).outputs
    with pytest.raises(NotUnderstood):
        shape(find(text), TABLES)
    twice = shape(find("SELECT * FROM (SELECT W_ID AS a, `Größe` AS A FROM w)"), TABLES)
    (leaf,) = leaves(twice.root)
    assert not any(value in leaf.columns for _, value in twice.outputs)
