"""Statements about the cluster: its nodes, and what is asked of them."""

from __future__ import annotations

from ebla.sql.cluster_statements import (
    AlterNode,
    CancelRequest,
    ExplainNode,
    ExplainTablet,
    ExplainTask,
    MoveTablet,
    NewGeneration,
    SetBalancing,
    WaitForRequest,
)
from ebla.sql.cursor import Cursor
from ebla.sql.lex import Kind
from ebla.sql.statements import Statement


def alter_cluster(cursor: Cursor) -> Statement:
    """`CLUSTER DECOMMISSION NODE 'x' | REMOVE NODE 'x' … | REBUILD NODE 'x' … | NEW CDC GENERATION …`, and
    `CANCEL REQUEST n | SET …`"""
    cursor.expect("CLUSTER")
    if cursor.accept("DECOMMISSION", "NODE"):
        return AlterNode(action="leave", node=_node(cursor))
    if cursor.accept("REMOVE", "NODE"):
        node = _node(cursor)
        return AlterNode(action="remove", node=node, ignored=_ignored(cursor))
    if cursor.accept("REBUILD", "NODE"):
        node = _node(cursor)
        source = _text(cursor, "the name of a datacenter") if cursor.accept("FROM") else None
        return AlterNode(action="rebuild", node=node, source=source)
    if cursor.accept("NEW", "CDC", "GENERATION"):
        return NewGeneration(table=cursor.name("the name of a table or view") if cursor.accept("OF") else None)
    if cursor.accept("CANCEL", "REQUEST"):
        return CancelRequest(request=request_at(cursor))
    if cursor.accept("SET", "BALANCING", "="):
        if not cursor.sees("ON") and not cursor.sees("OFF"):
            cursor.fail("ON or OFF")
        return SetBalancing(on=cursor.next().key == "ON")
    cursor.fail(
        "DECOMMISSION NODE, REMOVE NODE, REBUILD NODE, NEW CDC GENERATION, CANCEL REQUEST or SET balancing = behind "
        "ALTER CLUSTER"
    )


def move(cursor: Cursor) -> Statement:
    """`TABLET n OF t FROM 'a' TO 'b'`, behind MOVE"""
    cursor.expect("TABLET")
    tablet, table = _tablet(cursor)
    cursor.expect("FROM")
    source = _node(cursor)
    cursor.expect("TO")
    return MoveTablet(tablet=tablet, table=table, source=source, target=_node(cursor))


def explain_life(cursor: Cursor) -> Statement | None:
    """`TABLET n OF t | NODE 'x' | TASK 'id'`, behind EXPLAIN"""
    if cursor.accept("TABLET"):
        tablet, table = _tablet(cursor)
        return ExplainTablet(tablet=tablet, table=table)
    if cursor.accept("NODE"):
        return ExplainNode(node=_node(cursor))
    return ExplainTask(task=cursor.string("the id of a task")) if cursor.accept("TASK") else None


def sees_request(cursor: Cursor) -> bool:
    """REQUEST and its number, not a view of that name."""
    return cursor.sees("REQUEST") and cursor.peek(1).kind is Kind.NUMBER


def wait_for_request(cursor: Cursor) -> Statement:
    """`REQUEST n`, behind WAIT FOR"""
    cursor.expect("REQUEST")
    return WaitForRequest(request=request_at(cursor))


def request_at(cursor: Cursor) -> int:
    token = cursor.peek()
    if token.kind is not Kind.NUMBER or not token.text.isdigit():
        cursor.fail("the number of a request", "SHOW REQUESTS lists them")
    cursor.at += 1
    return int(token.text)


def _ignored(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.accept("IGNORE", "NODES"):
        return ()
    cursor.expect("(")
    names = [_node(cursor)]
    while cursor.accept(","):
        names.append(_node(cursor))
    cursor.expect(")")
    return tuple(names)


def _tablet(cursor: Cursor) -> tuple[int, str]:
    """`n OF t`"""
    token = cursor.peek()
    if token.kind is not Kind.NUMBER or not token.text.isdigit():
        cursor.fail("the number of a tablet", "SHOW TABLETS lists them")
    cursor.at += 1
    cursor.expect("OF")
    return int(token.text), cursor.name("the name of a table or view")


def _node(cursor: Cursor) -> str:
    return _text(cursor, "the name of a node")


def _text(cursor: Cursor, what: str) -> str:
    """A name, in quotes or not."""
    return cursor.string(what) if cursor.peek().kind is Kind.STRING else cursor.name(what)
