"""Statements and writes of a user, carried out: what they need is checked first, and a repeated one is done once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa

from ebla.api.statements import access as users
from ebla.api.statements.versions import parameter
from ebla.base import user_requests as a
from ebla.catalog import audit
from ebla.errors import ConflictError, EblaError, UnknownNameError
from ebla.model.access import Right, UserRole
from ebla.server import statement_rights
from ebla.server.access import require_below
from ebla.server.request_pool import Caller, RequestPool
from ebla.spark.result import Result
from ebla.sql import access_statements as access
from ebla.sql import cluster_statements as cs
from ebla.sql import statements as st
from ebla.sql.lex import StatementText
from ebla.sql.query import Query

Done = TypeVar("Done")

_READS = (
    Query,
    st.Explain,
    st.ExplainView,
    st.ExplainIndex,
    st.Describe,
    st.Check,
    st.WaitFor,
    cs.WaitForRequest,
    st.Flush,
)
"""Statements that commit nothing of the user's."""


def run_statements(pool: RequestPool, caller: Caller, text: str, parameters: Mapping[str, object]) -> Result:
    """Run the statements of a text in order; returns the last one's result. What a statement
    needs is asked before the first one runs, and again when it begins."""
    executor = pool.database.statements
    parsed = executor.parsed(text)
    for statement, part in parsed:
        statement_rights.refuse_escapes(part)
        pool.access.require(caller.user, statement_rights.of(statement, caller.user.name), ahead=True)
    results = [
        _statement(pool, caller, number, statement, part, parameters) for number, (statement, part) in enumerate(parsed)
    ]
    return results[-1]


def _statement(
    pool: RequestPool,
    caller: Caller,
    number: int,
    statement: st.Statement,
    part: StatementText,
    parameters: Mapping[str, object],
) -> Result:
    pool.access.require(caller.user, statement_rights.of(statement, caller.user.name))
    if isinstance(statement, st.Load):
        path = statement.path if statement.parameter is None else str(parameter(statement.parameter, parameters))
        require_below(path, pool.options.load_from)

    def work() -> Result:
        return pool.database.statements.carry_out(statement, part, parameters)

    def repeated(done: audit.Outcome) -> Result:
        if isinstance(statement, access.CreateUser | access.AlterUser):
            raise ConflictError(
                f"user {statement.name}: expected to be asked once, found that it was done before and the answer with "
                "its token was lost; ALTER USER … ROTATE TOKEN gives another one"
            )
        if isinstance(statement, st.CreateView) and not statement.asynchronous:
            pool.database.statements.carry_out(st.WaitFor(names=(statement.name,)), part, {})
        return Result(table=_numbers(done), spark=lambda: pool.database.spark)

    if isinstance(statement, _READS) or type(statement).__name__.startswith("Show"):
        return work()
    result = run_once(pool, number, part.text, work, repeated)
    if isinstance(statement, st.UserStatement):
        pool.access.forget()
    if isinstance(statement, st.CreateTable | st.CreateView):
        _own(pool, caller, number, statement.name)
    return result


def _own(pool: RequestPool, caller: Caller, number: int, relation: str) -> None:
    """What a user that is no admin has created belongs to it."""
    if caller.user.role is UserRole.ADMIN:
        return
    request = a.current()
    assert request is not None, "only a request is carried out"
    with contextlib.suppress(UnknownNameError), a.asking(request.statement(f"{number}.own", f"own {relation}")):
        context = pool.database.context
        users.grant(context.catalog, context.node, relation, caller.user.name, Right.OWN)
    pool.access.forget()


def _numbers(done: audit.Outcome) -> pa.Table:
    return pa.table({"rows": pa.array([done.rows], pa.int64()), "version": pa.array([int(done.version)], pa.int64())})


def run_once(
    pool: RequestPool, number: int, text: str, work: Callable[[], Done], repeated: Callable[[audit.Outcome], Done]
) -> Done:
    """Do something that commits, unless a try before has done it, here or on another node; then say what that did."""
    request = a.current()
    assert request is not None, "only a request is carried out"
    step = request.statement(number, text)
    with a.asking(step):
        try:
            result = work()
        except Exception:
            done = None if step.committed else _done(pool, step)
            if done is None:
                raise
            return repeated(done)
    done = None if step.committed else _done(pool, step)
    return result if done is None else repeated(done)


def _done(pool: RequestPool, step: a.UserRequest) -> audit.Outcome | None:
    catalog = pool.database.context.catalog
    with contextlib.suppress(EblaError), catalog.patience.without():  # what went wrong before says more
        return catalog.read(lambda connection: audit.done(connection, step))
    return None
