"""The console that is served is the one whose source is here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.console import missing

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = ROOT / "console"
COMMITTED = ROOT / "src" / "ebla" / "server" / "static"

NO_NPM = (
    "npm is not installed: that the console is compiled from its source was NOT tested. "
    "Install Node.js 20 or newer, and run `make setup`."
)

NO_HATCHLING = (
    "The backend that builds wheels was not found: that a wheel carries the console was NOT tested. "
    "Let pip reach a package index."
)


def files(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


@pytest.mark.slow
@pytest.mark.process
def test_the_committed_console_is_the_sources(tmp_path: Path):
    if shutil.which("npm") is None:
        missing(NO_NPM)
    subprocess.run(["scripts/setup.sh", "console"], cwd=ROOT, check=True)
    build = ["npm", "run", "build", "--", "--outDir", str(tmp_path), "--emptyOutDir"]
    done = subprocess.run(build, cwd=CONSOLE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made, committed = files(tmp_path), files(COMMITTED)
    assert made.keys() == committed.keys(), "run `make console`"
    assert [name for name in made if made[name] != committed[name]] == [], "run `make console`"


@pytest.mark.slow
@pytest.mark.process
def test_the_wheel_carries_the_console(tmp_path: Path):
    """Users need no Node.js: a wheel is built without it."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if "No matching distribution found for hatchling" in done.stderr:
        missing(NO_HATCHLING)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        below = "ebla/server/static/"
        carried = {
            name.removeprefix(below): archive.read(name) for name in archive.namelist() if name.startswith(below)
        }
    assert carried == files(COMMITTED)


def test_the_lock_has_versions_and_no_address():
    text = (CONSOLE / "package-lock.json").read_text()
    assert re.findall(r"\w+://[^\s\"]*", text) == [], "remove `funding` from the packages"
    lock = json.loads(text)
    assert "omit-lockfile-registry-resolved=true" in (CONSOLE / ".npmrc").read_text()
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert [name for name, one in packages.items() if "resolved" in one or "integrity" not in one] == []
    declared = json.loads((CONSOLE / "package.json").read_text())
    versions = [*declared["dependencies"].values(), *declared["devDependencies"].values()]
    assert [one for one in versions if not re.fullmatch(r"\d+\.\d+\.\d+", one)] == []


def test_no_page_names_another_host():
    """Names of XML spaces and links in licences are no requests; a test in the browser looks at these."""
    allowed = re.compile(rb"https?://www\.w3\.org/|https?://\(|https?://example")
    for name, content in files(COMMITTED).items():
        found = re.findall(rb"https?://[^\s\"'`)]+", content)
        assert [one for one in found if not allowed.match(one)] == [], name
