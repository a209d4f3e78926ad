"""The unit for systemd and the container file start a node as the command line has it, and let it stop in its time."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

from ebla.base.settings import load
from ebla.cli import node
from ebla.cluster.place import STOP_S

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def unit() -> configparser.SectionProxy:
    parsed = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(DEPLOY / "ebla-node.service")
    return parsed["Service"]


def of_container(instruction: str) -> str:
    [found] = re.findall(rf"^{instruction} (.+)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize(
    "command", [shlex.split(unit()["ExecStart"]), json.loads(of_container("ENTRYPOINT"))], ids=["systemd", "container"]
)
def test_a_node_is_started_by_a_command_that_there_is(command: list[str]):
    program, group, *rest = command
    assert (Path(program).name, group) == ("ebla", "node")
    start = typer.main.get_command(node.app).commands[rest[0]]  # type: ignore[attr-defined]
    given = start.make_context("start", rest[1:]).params
    assert given["config"] == Path("/etc/ebla/node.toml")


def test_it_is_asked_to_stop_and_killed_only_when_its_own_time_is_over():
    service = unit()
    assert service["KillSignal"] == of_container("STOPSIGNAL") == "SIGTERM"
    assert float(service["TimeoutStopSec"]) > STOP_S


def test_it_runs_as_a_user_of_its_own_whose_files_others_do_not_read():
    service = unit()
    assert service["User"] == of_container("USER") == "ebla"
    assert int(service["UMask"], 8) & 0o077 == 0o077
    assert int(load().file_umask, 8) & 0o077 == 0o077


def test_the_image_has_spark_and_the_server():
    assert '"/src[server]"' in (DEPLOY / "Containerfile").read_text()
    assert of_container("EXPOSE") == "7601"


def test_the_image_has_a_java_of_its_release_of_debian():
    text = (DEPLOY / "Containerfile").read_text()
    java = {"bookworm": "17", "trixie": "21"}[of_container("FROM").rpartition("-")[2]]
    assert re.findall(r"openjdk-(\d+)-jre-headless", text) == [java]


def test_the_image_is_made_of_what_a_wheel_is_made_of():
    text = (DEPLOY / "Containerfile").read_text()
    copied = [line.split() for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE)]
    sources = {name for *names, _ in copied for name in names}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {Path(one).parts[0] for one in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    assert sources == {"pyproject.toml", *project["project"]["license-files"], *packages}
    assert "readme" not in project["project"]
