"""Handlers and the log of their dictionaries' changes: what updates of them change."""

from __future__ import annotations

import hashlib
import json
from typing import assert_never

from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Change
from ebla.model import changes as c

ROW_KEY_CHARS = 256


def change(update: c.HandlerUpdate) -> Change:
    match update:
        case c.PutHandler(name=name, settings=settings, should_run=should_run):
            return rows.put(s.mv_handlers, job_name=name, job_settings=settings, should_run=should_run)
        case c.RemoveHandler(name=name):
            return rows.delete(s.mv_handlers, job_name=name)
        case c.LogDictionaryChanges(changes=logged):
            return rows.insert(s.mv_dictionary_changes, [_logged(one) for one in logged])
        case c.ForgetDictionaryChanges(relation=relation, version=done):
            return rows.delete(s.mv_dictionary_changes, relation_id=relation, version=rows.AtMost(done))
        case _:
            assert_never(update)


def _logged(one: c.DictionaryChange) -> rows.Where:
    return {
        "relation_id": one.relation,
        "version": one.version,
        "row_key": _short(one.key),
        "changed_columns": json.dumps(list(one.columns)),
    }


def _short(key: str) -> str:
    """A key that says which row it is; of a long one its beginning and a digest. PostgreSQL indexes no long texts."""
    if len(key) <= ROW_KEY_CHARS:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return json.dumps({"begins": key[:ROW_KEY_CHARS], "digest": digest}, ensure_ascii=False)
