"""Errors of statements that run point at the user's text, and know none of Ebla's own names."""

from __future__ import annotations

import pytest

from ebla.errors import SqlError
from support.warehouse import connect

pytestmark = pytest.mark.spark


def test_places_are_those_of_the_users_script(tmp_path, spark):
    wrong = [
        "DELETE FROM orders WHERE §nope = 1",
        "SELECT 1;\n\nDELETE FROM orders\nWHERE id = 1 AND §nope = 1",
        "UPDATE orders SET total = §nope + 1 WHERE id = 1",
        "UPDATE orders SET id = id + §nope",
        "MERGE INTO orders o USING fresh n ON o.id = n.id\nWHEN MATCHED THEN UPDATE SET total = §n.wrong",
        "MERGE INTO orders o USING fresh n ON §o.idd = n.id WHEN MATCHED THEN DELETE",
        "INSERT INTO orders (id) SELECT §nope FROM fresh",
        "SELECT 1;\nSELECT id,\n  §nope FROM orders",
        "DELETE FROM orders WHERE id = = 1",
    ]
    with connect(tmp_path / "w", spark, auto_refresh=False) as db:
        db.sql("CREATE TABLE orders (id BIGINT, total BIGINT, PRIMARY KEY (id)); CREATE TABLE fresh (id BIGINT)")
        for marked in wrong:
            text = marked.replace("§", "")
            with pytest.raises(SqlError) as caught:
                db.sql(text).rows()
            assert "_ebla" not in str(caught.value), str(caught.value)
            if "§" in marked:
                at = marked.index("§")
                place = (text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1)
                assert (caught.value.line, caught.value.column) == place, f"{text}: {caught.value}"
            else:
                assert caught.value.line in (None, 1), str(caught.value)
