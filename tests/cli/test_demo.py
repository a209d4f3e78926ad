"""The demonstration: its model, its way to fail, and the whole of it once."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys

import pytest

from ebla.demo.tables import files, model
from ebla.demo.tables.model import Order, Shop
from ebla.demo.tables.stage import Stage

DAY = dt.date(2024, 1, 1)


def test_the_model_merges_as_the_statement_does():
    shop = Shop(orders={1: Order(1, 100, "new", DAY), 2: Order(1, 200, "new", DAY)})
    assert shop.merge({1: None, 2: Order(9, 900, "paid", DAY), 3: Order(3, 300, "new", DAY)}) == 3
    assert shop.orders == {2: Order(1, 900, "new", DAY), 3: Order(3, 300, "new", DAY)}


def test_the_model_counts_changes_by_key():
    before = {1: Order(1, 1, "new", DAY), 2: Order(1, 2, "new", DAY), 3: Order(1, 3, "new", DAY)}
    after = {1: before[1], 2: Order(1, 5, "new", DAY), 4: Order(1, 4, "new", DAY)}
    assert model.changes(before, after) == {"insert": 1, "delete": 1, "update": 1}


def test_the_files_are_the_same_every_time(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ORDERS", 400)
    monkeypatch.setattr(files, "CUSTOMERS", 50)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert files.generate(tmp_path / "a") == files.generate(tmp_path / "b")
    assert (tmp_path / "a" / "customers.csv").read_bytes() == (tmp_path / "b" / "customers.csv").read_bytes()


def test_a_claim_that_fails_fails_the_demonstration(capsys):
    stage = Stage()
    stage.claim("one and one is two", 1 + 1, 2)
    assert stage.end() == 0
    stage.claim("one and one is three", 1 + 1, 3)
    assert stage.end() == 1
    text = capsys.readouterr().out
    assert "FAILED  one and one is three: expected 3, found 2" in text
    assert "1 of 2 claims FAILED" in text


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
def test_all_claims_hold():
    found = subprocess.run(
        [sys.executable, "-m", "ebla.demo", "tables"], capture_output=True, text=True, check=False, timeout=280
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert "claims hold" in found.stdout
    assert found.stderr == ""
