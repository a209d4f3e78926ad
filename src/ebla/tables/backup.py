"""A warehouse as files in one directory, from which `ebla.tables.restore` makes another one.

Theory of operation. Runs never change, so a backup is the rows of the catalog, read at once, and then the files that
they name, copied while writers go on. A pin on version 0 keeps vacuum from forgetting anything meanwhile. Each run is
there once, whatever number of nodes has it. A second backup into the same directory copies only files that are new, and
removes those that it does not need; `backup.json` names the catalog's rows and is replaced last, so a backup that was
killed leaves the one before it whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebla.base.failpoint import hit
from ebla.base.ids import Version
from ebla.base.rights import make_directory
from ebla.catalog import dump, manifest, reads
from ebla.catalog.manifest import File
from ebla.errors import CorruptRunError, UsageError
from ebla.storage.copies import copy_checked
from ebla.storage.file_cache import RemoteFileError
from ebla.storage.files import Root
from ebla.tables.scans import Pins
from ebla.tables.write_access import WriteAccess

HEAD = "backup.json"
FILES = "files"
FORMAT = 1
RENEWED_FILES = 100
"""After this many files the pin is looked at again, and renewed where half of its lease is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a directory holds of a warehouse."""

    version: Version
    """The newest version that it has."""
    files: int
    bytes: int
    copied: int
    """The files that were not there before."""


def backup(context: WriteAccess, pins: Pins, place: str) -> Backup:
    """Copy the warehouse as it is now into a directory; one with an earlier backup of it is brought up to date."""
    folder = Path(place).absolute()
    _require_own(folder, context.catalog.cluster_id())
    make_directory(folder, context.settings.file_mask)
    hold = pins.hold(Version(0), "backup")
    try:
        return _copied(context, pins, folder)
    finally:
        hold.release()
        pins.tidy()


def _copied(context: WriteAccess, pins: Pins, folder: Path) -> Backup:
    catalog, target = context.catalog, Root(str(folder / FILES), mask=context.settings.file_mask)
    rows = folder / f"catalog-{uuid.uuid4().hex}"
    make_directory(rows, context.settings.file_mask)
    with catalog.reading() as connection:
        dump.write(connection, rows, context.settings.file_mask)
        version = reads.current_version(connection)
        files = {file.path: file for file in manifest.files(connection)}
        roots = context.nodes.read(connection)
    hit("backup.read")
    copied = 0
    for number, file in enumerate(files.values()):
        if number % RENEWED_FILES == 0:
            pins.hold(Version(0), "backup").release()
            context.progress(f"backup: {number:,} of {len(files):,} files", number / len(files))
        if target.size(file.path) != file.bytes:
            _copy(file, list(roots.values()), target)
            copied += 1
    hit("backup.copied")
    size = sum(file.bytes for file in files.values())
    head = {
        "format": FORMAT,
        "cluster": catalog.cluster_id(),
        "schema": dump.schema_number(),
        "version": version,
        "made_at": catalog.clock(),
        "catalog": rows.name,
        "files": len(files),
        "bytes": size,
    }
    _replace(folder / HEAD, head)
    _remove_others(folder, rows, target, files)
    return Backup(version=version, files=len(files), bytes=size, copied=copied)


def _copy(file: File, roots: Sequence[Root], target: Root) -> None:
    """Copy a run from the first node that has it as the manifest says."""
    for source in sorted(roots, key=lambda root: root.is_remote):
        if source.sound(file.path, file.bytes):
            with contextlib.suppress(RemoteFileError):  # a node on another machine that has it not, or is away
                copy_checked(source, target, file.path, file.bytes, f"{file.path}.{uuid.uuid4().hex}")
                return
    raise CorruptRunError(
        f"{file.path}: expected a copy of {file.bytes} bytes on a node, found none; CHECK TABLE says what is lost"
    )


def _require_own(folder: Path, cluster: str) -> None:
    if (folder / HEAD).exists():
        if read_head(folder)["cluster"] != cluster:
            raise UsageError(f"{folder}: expected an earlier backup of this warehouse, found one of another")
    elif folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: expected a directory to write the backup to, found a file")
    elif folder.exists() and any(not _is_part(one.name) for one in folder.iterdir()):
        raise UsageError(f"{folder}: expected an empty directory or an earlier backup, found other files")


def read_head(folder: Path) -> dict[str, Any]:
    """What `backup.json` says."""
    file = folder / HEAD
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder}: expected a backup of a warehouse, found none: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{file}: expected a backup of format {FORMAT}, found {found!r:.80}")
    return found


def _is_part(name: str) -> bool:
    """Whether a backup that was killed may have left it."""
    return name == FILES or name.startswith(("catalog-", f".{HEAD}"))


def _replace(file: Path, content: Mapping[str, object]) -> None:
    written = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
    with written.open("x", encoding="utf-8") as out:
        json.dump(content, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    written.replace(file)


def _remove_others(folder: Path, rows: Path, target: Root, files: Mapping[str, File]) -> None:
    """Remove what earlier backups needed, and what killed ones left."""
    for one in folder.iterdir():
        if one.name.startswith("catalog-") and one != rows:
            shutil.rmtree(one)
        elif one.name.startswith(f".{HEAD}"):
            one.unlink()
    for path, _, is_folder in target.listing():
        if not is_folder and path not in files:
            target.remove(path)
