"""`SHOW CREATE`: the statements that would create what is there, from the catalog alone.

Run as a script they make the same thing again, in a session with the same settings. Names are quoted where they have
to be; queries and expressions stand as their authors wrote them.
"""

from __future__ import annotations

from sqlalchemy import Connection

from ebla.catalog import reads
from ebla.errors import UnknownNameError, UsageError
from ebla.model.handlers import Handler, by_name, is_reserved
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import Column, Kind, Relation
from ebla.relations import handlers as stored
from ebla.relations import indexes as index_definition
from ebla.relations.guard import require_kind
from ebla.relations.indexes import Index
from ebla.sql.lex import name_text, quote_string

DEFINITION = "# definition"
"""In `DESCRIBE`, in place of a column: this row has the view's query."""


def names_text(columns: list[Column] | tuple[Column, ...]) -> str:
    return ", ".join(name_text(column.name) for column in columns)


def statement(connection: Connection, what: str, name: str) -> str:
    """The statements that create a table, a view, an index or a handler."""
    if what == "handler":
        return _handler(connection, name)
    kind = Kind(what)
    relation = reads.find_relation(connection, name)
    if relation is None:
        names = reads.relation_names(connection, kind)
        many = "indexes" if kind is Kind.INDEX else f"{kind}s"
        have = f"{many} are {', '.join(names[:20])}" if names else f"there are no {many} yet"
        raise UnknownNameError(f"{kind} {name}: expected {kind.named} of this name, found none; {have}")
    require_kind(relation, kind, "SHOW CREATE")
    match kind:
        case Kind.TABLE:
            return _table(relation)
        case Kind.VIEW:
            return _view(relation)
        case Kind.INDEX:
            return _index(index_definition.load(connection, name))


def _table(relation: Relation) -> str:
    lines = [_column(column) for column in relation.visible]
    if not relation.keyless:
        lines.append(f"PRIMARY KEY ({names_text(relation.key)})")
    lines += [f"CONSTRAINT {name_text(one.name)} CHECK ({one.text})" for one in relation.constraints]
    comment = "" if relation.comment is None else f" COMMENT {quote_string(relation.comment)}"
    body = ",\n  ".join(lines)
    return f"CREATE TABLE {name_text(relation.name)} (\n  {body}\n){comment} WITH ({_storage(relation)})"


def _column(column: Column) -> str:
    text = f"{name_text(column.name)} {column.type.upper() if '<' not in column.type else column.type}"
    if not column.nullable and column.key_position is None:
        text += " NOT NULL"
    text += "" if column.default is None else f" DEFAULT {column.default.text}"
    return text if column.comment is None else f"{text} COMMENT {quote_string(column.comment)}"


def _storage(relation: Relation) -> str:
    least = relation.options.get("min_copies")
    given = "" if least is None else f", min_copies = {least}"
    return f"tablets = {relation.tablets}, replication = {relation.replication}{given}"


def _view(relation: Relation) -> str:
    kept = relation.options
    # Views from before this was kept list all their columns, which is never wrong.
    columns = f" ({names_text(relation.visible)})" if kept.get("named", True) else ""
    key = "" if relation.keyless else f" PRIMARY KEY ({names_text(relation.key)})"
    refresh = ", refresh = 'incremental'" if kept.get("refresh") == "incremental" else ""
    made = (
        f"CREATE MATERIALIZED VIEW {name_text(relation.name)}{columns}{key} WITH ({_storage(relation)}{refresh}) AS\n"
    )
    made += str(kept["query"])
    if relation.comment is not None:
        made += f";\nCOMMENT ON TABLE {name_text(relation.name)} IS {quote_string(relation.comment)}"
    return made


def _index(index: Index) -> str:
    items = [
        (item.text if item.is_expression else name_text(item.text)) + (" DESC" if item.descending else "")
        for item in index.items
    ]
    unique = "UNIQUE " if index.unique else ""
    made = f"CREATE {unique}INDEX {name_text(index.name)} ON {name_text(index.base.name)} ({', '.join(items)})"
    if index.include:
        included = [column for column in index.base.columns if column.physical in index.include]
        made += f" INCLUDE ({names_text(sorted(included, key=lambda c: index.include.index(c.physical)))})"
    made += "" if index.where is None else f" WHERE {index.where}"
    return made + (" WITH (build = 'deferred')" if index.state is Permission.ABSENT else "")


def _handler(connection: Connection, name: str) -> str:
    handlers = stored.handlers(connection)
    found = by_name(handlers, name)
    if is_reserved(name):
        raise UsageError(
            f"handler {name}: expected one that was created, found one of the system's own; system.handlers shows it"
        )
    if found is None:
        created = [h.name for h in handlers if not is_reserved(h.name)]
        have = f"handlers are {', '.join(created)}" if created else "there is only default"
        raise UnknownNameError(f"handler {name}: expected a handler of this name, found none; {have}")
    return _handler_text(connection, found)


def _handler_text(connection: Connection, handler: Handler) -> str:
    def called(number: object) -> str:
        relation = reads.relation_by_id(connection, number)  # type: ignore[arg-type]
        assert relation is not None, "a relation that is dropped leaves its handlers"
        return name_text(relation.name)

    made = f"CREATE HANDLER {name_text(handler.name)}"
    made += "" if handler.consumer is None else f" CONSUMER {name_text(handler.consumer)}"
    parts = [f"PROCESS {', '.join(called(view) for view in handler.views)}"] if handler.views else []
    for one in handler.inputs:
        feed = "" if one.changefeed is None else f" CHANGEFEED {name_text(one.changefeed)}"
        parts.append(f"INPUT {called(one.relation)}{feed} AS {'BATCH' if one.batch else 'STREAM'}")
    made += "".join(f"\n  {part}{',' if part is not parts[-1] else ''}" for part in parts)
    settings = {**handler.settings, **({} if handler.should_run else {"should_run": "false"})}
    return made + (f"\n  WITH ({', '.join(f'{n} = {v}' for n, v in settings.items())})" if settings else "")
