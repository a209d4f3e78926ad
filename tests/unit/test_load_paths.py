"""Which files a path of LOAD means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ebla.errors import LoadError
from ebla.sql.parse import parse
from ebla.sql.statements import Load
from ebla.tables.loads import find_files

FILES = ["a.csv", "b.csv", "_c.csv", ".d.csv", "day=1/e.csv", "day=2/f.csv", "day=2/deep/g.csv", "_temporary/h.csv",
         ".git/i.csv", "with space/j.csv"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(folder: Path, path: str) -> list[str]:
    return [os.path.relpath(file, folder) for file in find_files(path.replace("{}", str(folder)))]


ALL = ["a.csv", "b.csv", "day=1/e.csv", "day=2/deep/g.csv", "day=2/f.csv", "with space/j.csv"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("{}/a.csv", ["a.csv"]),
        ("{}/_c.csv", ["_c.csv"]),
        ("{}/*.csv", ["a.csv", "b.csv"]),
        ("{}/[b-z].csv", ["b.csv"]),
        ("{}/day=*", ["day=1/e.csv", "day=2/deep/g.csv", "day=2/f.csv"]),
        ("{}/day=*/", ["day=1/e.csv", "day=2/deep/g.csv", "day=2/f.csv"]),
        ("{}/day=*/*.csv", ["day=1/e.csv", "day=2/f.csv"]),
        ("{}/**/*.csv", ["a.csv", "b.csv", *ALL[2:]]),
        ("{}/*", ALL),
        ("{}", ALL),
        ("{}/_temporary", ["_temporary/h.csv"]),
        ("file://{}/a.csv", ["a.csv"]),
        ("file:{}/a.csv", ["a.csv"]),
        ("FILE://localhost{}/day=*", ["day=1/e.csv", "day=2/deep/g.csv", "day=2/f.csv"]),
        ("file://{}/with%20space/j.csv", ["with space/j.csv"]),
        ("{}/with space", ["with space/j.csv"]),
    ],
)
def test_files_of_a_path(folder: Path, path: str, expected: list[str]):
    assert names(folder, path) == expected


def test_a_link_to_a_directory_above_is_no_endless_way(folder: Path):
    (folder / "day=1" / "up").symlink_to(folder, target_is_directory=True)
    before = names(folder, "{}")
    assert "a.csv" in before
    assert len(before) == len({(folder / name).resolve() for name in before})


def test_a_file_that_two_names_lead_to_is_loaded_once(folder: Path):
    plain = names(folder, "{}")
    (folder / "latest").symlink_to(folder / "day=1", target_is_directory=True)
    (folder / "zz.csv").symlink_to(folder / "a.csv")
    assert len(names(folder, "{}")) == len(plain)
    assert len(names(folder, "{}/*.csv")) == len({(folder / n).resolve() for n in names(folder, "{}/*.csv")})


@pytest.mark.parametrize("path", ["{}/nope.csv", "{}/*.parquet", "{}/.git/nope", "file://{}/with space%", "", "a\0b"])
def test_a_path_without_files_is_an_error(folder: Path, path: str):
    with pytest.raises(LoadError, match=r"expected (at least one file|the path of files)"):
        names(folder, path)


@pytest.mark.parametrize("path", ["s3://bucket/a.csv", "hdfs:///a", "file://elsewhere/a.csv", "https://[/a"])
def test_an_address_elsewhere_is_refused(path: str):
    with pytest.raises(LoadError, match="expected a path of this machine"):
        find_files(path)


def test_the_path_may_be_a_parameter():
    assert parse("LOAD INTO t FROM :path FORMAT csv") == Load(table="t", parameter="path", format="csv")
    assert parse("LOAD INTO t FROM ':path'") == Load(table="t", path=":path")
