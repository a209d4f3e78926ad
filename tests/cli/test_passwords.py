"""Passwords among the arguments: which are moved to the environment, and that no list of processes shows them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ebla.base.addresses import has_password
from ebla.cli.passwords import without_passwords
from ebla.cluster.config import PREFIX, NodeConfig
from support.warehouse import eventually

SECRET = "postgresql://ebla:secret@db/ebla"
PLAIN = "postgresql://ebla@db/ebla"


@pytest.mark.parametrize(
    ("address", "has"),
    [
        (SECRET, True),
        ("postgresql://ebla:se@cret@db/ebla", True),
        ("postgresql://ebla@db/ebla?password=secret", True),
        (PLAIN, False),
        ("postgresql://db:5432/ebla?schema=shop", False),
        ("http://a:7601,http://b:7601", False),
        ("/data/a:b@c", False),
    ],
)
def test_an_address_has_a_password_or_none(address: str, has: bool):
    assert has_password(address) is has


@pytest.mark.parametrize(
    ("arguments", "left", "moved"),
    [
        (["-w", SECRET, "run", "--json"], ["run", "--json"], {"EBLA_WAREHOUSE": SECRET}),
        (["run", f"--warehouse={SECRET}"], ["run"], {"EBLA_WAREHOUSE": SECRET}),
        ([f"-w{SECRET}", "status"], ["status"], {"EBLA_WAREHOUSE": SECRET}),
        (["-w", SECRET, "run", "-w", PLAIN], ["run"], {"EBLA_WAREHOUSE": PLAIN}),
        (["-w", PLAIN, "run"], ["-w", PLAIN, "run"], {}),
        (["sql", "--", "-w", SECRET], ["sql", "--", "-w", SECRET], {}),
        (["run", "-w"], ["run", "-w"], {}),
        (
            ["node", "start", "--catalog", SECRET, "--name", "n1"],
            ["node", "start", "--name", "n1"],
            {"EBLA_NODE_CATALOG": SECRET},
        ),
    ],
)
def test_what_has_a_password_is_said_by_the_environment(arguments: list[str], left: list[str], moved: dict[str, str]):
    assert without_passwords(arguments) == (left, moved)


def test_the_variable_of_a_node_is_that_of_its_configuration():
    [name] = without_passwords(["--catalog", SECRET])[1]
    assert name.removeprefix(PREFIX).lower() in NodeConfig.model_fields


@pytest.mark.process
@pytest.mark.parametrize(
    ("before", "after"),
    [(["-w"], ["run"]), (["node", "start", "--name", "n1", "--root", "root", "--cluster", "shop", "--catalog"], [])],
)
def test_no_list_of_processes_shows_a_password(tmp_path: Path, before: list[str], after: list[str]):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://ebla:secret@127.0.0.1:{silent.getsockname()[1]}/ebla"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "EBLA_STORAGE_ROOT": str(tmp_path)}
        command = [sys.executable, "-X", "utf8", "-m", "ebla", *before, address, *after]
        with subprocess.Popen(command, env=environment, cwd=tmp_path) as process:
            try:
                place = Path(f"/proc/{process.pid}")
                eventually(lambda: address.encode() in (place / "environ").read_bytes())
                listed = (place / "cmdline").read_bytes().split(b"\0")
                assert listed[1:5] == [b"-X", b"utf8", b"-m", b"ebla"]
                assert b"secret" not in b" ".join(listed)
                assert [one.encode() for one in (*before[:-1], *after)] == listed[5:-1]
                silent.settimeout(60)
                silent.accept()[0].close()  # it asks the address that the environment says
            finally:
                process.kill()
