"""Files that Spark is told of by name."""

from __future__ import annotations

from pathlib import Path

from ebla.spark.session import _POOLS, file_address


def test_an_address_is_not_encoded():
    assert file_address(Path("/a folder/größe.xml")) == "file:///a folder/größe.xml"


def test_the_pools_are_in_a_file():
    assert Path(_POOLS["spark.scheduler.allocation.file"].removeprefix("file://")).is_file()
