"""Handlers and the log of their dictionaries' changes, as commits write them."""

from __future__ import annotations

import hashlib
import json
from typing import assert_never

from sqlalchemy import Connection, delete, insert

from ebla.catalog import schema as s
from ebla.model import changes as c

ROW_KEY_CHARS = 256


def apply(connection: Connection, change: c.HandlerUpdate) -> None:
    match change:
        case c.PutHandler(name=name, settings=settings, should_run=should_run):
            connection.execute(delete(s.mv_handlers).where(s.mv_handlers.c.job_name == name))
            row = {"job_name": name, "job_settings": settings, "should_run": should_run}
            connection.execute(insert(s.mv_handlers), row)
        case c.RemoveHandler(name=name):
            connection.execute(delete(s.mv_handlers).where(s.mv_handlers.c.job_name == name))
        case c.LogDictionaryChanges(changes=logged):
            _log_dictionary_changes(connection, logged)
        case c.ForgetDictionaryChanges(relation=relation, version=done):
            log = s.mv_dictionary_changes
            connection.execute(delete(log).where(log.c.relation_id == relation, log.c.version <= done))
        case _:
            assert_never(change)


def _log_dictionary_changes(connection: Connection, changes: tuple[c.DictionaryChange, ...]) -> None:
    rows = [
        {
            "relation_id": one.relation,
            "version": one.version,
            "row_key": _short(one.key),
            "changed_columns": json.dumps(list(one.columns)),
        }
        for one in changes
    ]
    if rows:
        connection.execute(insert(s.mv_dictionary_changes), rows)


def _short(key: str) -> str:
    """A key that says which row it is; of a long one its beginning and a digest. PostgreSQL indexes no long texts."""
    if len(key) <= ROW_KEY_CHARS:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return json.dumps({"begins": key[:ROW_KEY_CHARS], "digest": digest}, ensure_ascii=False)
