"""Names that would break a line, a terminal or a database are refused at every door that makes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebla.errors import TypeMismatchError, UnknownNameError, UsageError
from ebla.model.relation import Kind, misnamed
from ebla.validate import RelationFacts, Warehouse, script_issues
from support.warehouse import connect

CONTROLS = ["\0", "\n", "\r", "\t", "\x1b[31m", "\x7f", "\x9b", "\u2028", "\ud800"]
KNOWN = Warehouse(
    relations={
        "t": RelationFacts(name="t", kind=Kind.TABLE, columns={"id": "bigint"}, key=("id",)),
        "w": RelationFacts(name="w", kind=Kind.VIEW, columns={"id": "bigint"}, key=("id",), reads=frozenset({"t"})),
    }
)


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_character_is_named_by_its_number_and_place(control: str):
    found = misnamed(f"ab{control}c")
    assert found is not None
    assert f"U+{ord(control[0]):04X} as character 3" in found


@pytest.mark.parametrize("name", ["t", "with space", "naïve", "表", "🙂", "a.b", "`", "'", "\u00a0x"[1:], "e\u0301"])
def test_other_characters_are_welcome(name: str):
    assert misnamed(name) is None


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE `a{}b` (id BIGINT)",
        "CREATE TABLE x (`a{}b` BIGINT)",
        "CREATE MATERIALIZED VIEW `a{}b` AS SELECT id FROM t",
        "CREATE MATERIALIZED VIEW v AS SELECT id, id AS `a{}b` FROM t",
        "CREATE MATERIALIZED VIEW v (`a{}b`) AS SELECT id FROM t",
        "CREATE HANDLER `a{}b` PROCESS w, INPUT t AS STREAM",
        "CREATE HANDLER h CONSUMER `a{}b` PROCESS w, INPUT t AS STREAM",
        "ALTER TABLE t ADD COLUMN `a{}b` INT",
        "CREATE TABLE x (s STRUCT<`a{}b`: INT>)",
        "ALTER TABLE t ADD COLUMN s ARRAY<STRUCT<x: STRUCT<`a{}b`: INT>>>",
    ],
)
def test_the_validator_refuses_them(statement: str, control: str):
    issues = script_issues(statement.replace("{}", control), KNOWN)
    assert [issue.code.value for issue in issues] == ["reserved-name"]
    assert "control characters" in issues[0].message


def test_statements_refuse_them(tmp_path: Path):
    with connect(tmp_path / "warehouse") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        before = db.version
        for statement in (
            "CREATE TABLE `a{}b` (id BIGINT)",
            "CREATE TABLE x (`a{}b` BIGINT)",
            "ALTER TABLE t ADD COLUMN `a{}b` INT",
            "ALTER TABLE t RENAME COLUMN id TO `a{}b`",
            "ALTER TABLE t RENAME TO `a{}b`",
            "CREATE INDEX `a{}b` ON t (id)",
            "CREATE TABLE x (s STRUCT<`a{}b`: INT>)",
            "ALTER TABLE t ADD COLUMN s MAP<STRING, STRUCT<`a{}b`: INT>>",
        ):
            for control in CONTROLS:
                with pytest.raises(UsageError, match="without control characters"):
                    db.sql(statement.replace("{}", control))
        assert db.version == before


@pytest.mark.parametrize("name", ["a\ud800", "a\udfffb"])
def test_a_relation_whose_name_is_half_a_character_is_unknown(tmp_path: Path, name: str):
    with connect(tmp_path / "warehouse") as db:
        for statement in ("COMPACT", "VACUUM", "DESCRIBE", "DROP TABLE", "CHECK TABLE", "CHECK INDEX", "DROP INDEX",
                          "EXPLAIN INDEX", "FLUSH", "TRUNCATE TABLE", "DELETE FROM"):  # fmt: skip
            with pytest.raises(UnknownNameError):
                db.sql(f"{statement} `{name}`")
        db.sql(f"DROP TABLE IF EXISTS `{name}`")


def test_a_type_that_is_nested_too_deep_is_refused(tmp_path: Path):
    deep = "ARRAY<" * 3000 + "INT" + ">" * 3000
    with connect(tmp_path / "warehouse") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        for statement in (
            f"CREATE TABLE x (a {deep})",
            f"ALTER TABLE t ADD COLUMN a {deep}",
            f"SELECT NULL::{deep}",
            f"SELECT * FROM t WHERE CAST(NULL AS {deep}) IS NULL",
            f"INSERT INTO t VALUES (CAST(NULL AS {deep}))",
            f"UPDATE t SET id = NULL::{deep}",
            f"DELETE FROM t WHERE NULL::{deep} IS NULL",
            f"CREATE MATERIALIZED VIEW v AS SELECT id, NULL::{deep.replace('ARRAY<', 'STRUCT<a: ')} AS a FROM t",
        ):
            with pytest.raises(TypeMismatchError, match="nested at most 31 deep"):
                db.sql(statement)
    issues = script_issues(f"CREATE TABLE x (a {deep})", KNOWN)
    assert [issue.code.value for issue in issues] == ["unsupported-type"]
