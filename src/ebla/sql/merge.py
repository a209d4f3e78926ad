"""MERGE as a query; see `dml` for its output.

Theory of operation. The table and the source are joined once, by the kind of join that keeps the rows
which some clause wants. Each kind of clause is then evaluated in the scope that it has in Spark: WHEN
MATCHED sees both sides, WHEN NOT MATCHED only the source, WHEN NOT MATCHED BY SOURCE only the table. An
unqualified column that both sides have would otherwise be ambiguous where the user meant just one. So
there are up to three nested SELECTs, each with one CASE over its clauses, whose value is a struct of the
clause's number and values: conditions are tried in order, the first that is true wins, and expressions of
other clauses are not evaluated. A row for which no clause fires gives NULL and is dropped.

A row of the table that more than one source row would update or delete is an error, as in Spark and in
the standard: the result would depend on their order. Only a lone WHEN MATCHED THEN DELETE may repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ebla.errors import SqlError
from ebla.sql.lex import quote, quote_string
from ebla.sql.literals import Dialect
from ebla.sql.query import Query
from ebla.sql.statements import Matched, Merge, MergeClause
from ebla.sql.target import Sql, Target, as_column, comma, moves, resolved, target

MERGE_CARDINALITY = "more than one source row matches the same row of the table"
"""Part of the message with which Spark fails while it runs an ambiguous MERGE."""

_IN_TARGET = "`_ebla_target`"
_IN_SOURCE = "`_ebla_source`"
_GUARDS: dict[Matched, str] = {
    "matched": f"{_IN_TARGET} AND {_IN_SOURCE}",
    "not_matched": f"{_IN_TARGET} IS NULL",
    "not_matched_by_source": f"{_IN_SOURCE} IS NULL",
}
_RESULT: dict[Matched, str] = {
    "matched": "`_ebla_matched`",
    "not_matched": "`_ebla_not_matched`",
    "not_matched_by_source": "`_ebla_not_matched_by_source`",
}


def merge_query(
    stmt: Merge,
    columns: Sequence[str],
    key: Sequence[str],
    hidden: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    dialect: Dialect | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Query:
    """One join; if rows can be matched, also a window over the rows that change, by the table's key."""
    table = target(stmt.table, stmt.alias, columns, key, hidden, types, dialect, defaults)
    source = stmt.source_alias or "_ebla_source_rows"
    clauses = [
        Clause(number=number, stmt=clause, values=_values(table, source, clause))
        for number, clause in enumerate(stmt.clauses)
    ]
    cases = {
        matched: _case([clause for clause in clauses if clause.stmt.matched == matched], clauses, guard)
        for matched, guard in _GUARDS.items()
    }
    sql = _joined(table, stmt, source, cases)
    if cases["not_matched"]:
        sql = _source_scope(table, sql, source, cases)
    if cases["not_matched_by_source"]:
        sql = _target_scope(table, sql, cases)
    sql = _fired(table, sql, clauses, cases)
    may_move = any(clause.stmt.action == "update" and moves(table, clause.values) for clause in clauses)
    return resolved(table, sql, may_move=may_move).query()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """A WHEN with its number, and the expressions that become values of columns."""

    number: int
    stmt: MergeClause
    values: Mapping[str, str]


Cases = Mapping[Matched, str]
"""For each kind of clause the CASE over its clauses; empty where there are none."""


def _values(table: Target, source: str, clause: MergeClause) -> dict[str, str]:
    if clause.star:
        return {name: f"{quote(source)}.{quote(name)}" for name in table.columns}
    if clause.action != "insert":
        return table.assigned(clause.assignments, clause.places)
    names = table.columns if clause.columns is None else table.resolve(clause.columns, doing="listed")
    if len(names) != len(clause.values):
        raise SqlError(
            f"MERGE INTO {table.table}: expected {len(names)} values to insert ({', '.join(names)}), "
            f"found {len(clause.values)}"
        )
    return table.expressions(names, clause.values, clause.places)


def _case(chosen: Sequence[Clause], clauses: Sequence[Clause], guard: str) -> str:
    """The first clause whose condition is true, as a struct: its number, and its values.

    Each clause has a field of its own for its values, which is NULL in the structs of the others: values of
    different types that go to one column do not meet before each has been brought to the column's type.
    """
    if not chosen:
        return ""
    branches: list[str] = []
    for clause in chosen:
        fields = [f"'clause', {clause.number}"]
        for other in clauses:
            if other.values:
                given = ", ".join(f"'v{i}', {value}" for i, value in enumerate(other.values.values()))
                fields.append(f"'k{other.number}', " + (f"named_struct({given})" if other is clause else "NULL"))
        condition = "" if clause.stmt.condition is None else f" AND ({clause.stmt.condition})"
        branches.append(f"WHEN {guard}{condition} THEN named_struct({', '.join(fields)})")
    return f"CASE {' '.join(branches)} END"


def _joined(table: Target, stmt: Merge, source: str, cases: Cases) -> Sql:
    """Both sides, and what WHEN MATCHED makes of a pair."""
    keeps_source, keeps_target = bool(cases["not_matched"]), bool(cases["not_matched_by_source"])
    join = {
        (False, False): "INNER JOIN",
        (True, False): "RIGHT OUTER JOIN",
        (False, True): "LEFT OUTER JOIN",
        (True, True): "FULL OUTER JOIN",
    }[keeps_source, keeps_target]
    alias, source_alias = quote(table.alias), quote(source)
    output = [
        f"{source_alias}.*" if keeps_source else f"{source_alias}.{_IN_SOURCE}",
        f"{alias}.{_IN_TARGET}",
    ]
    output += [as_column(table.old(name), f"_ebla_old{i}") for i, name in enumerate(table.stored)]
    if cases["matched"]:
        output.append(f"{cases['matched']} AS {_RESULT['matched']}")
    stored = ", ".join(quote(name) for name in table.stored)
    return Sql(quote(table.table), 0).within(
        f"SELECT {comma(output)}\nFROM (SELECT {stored}, TRUE AS {_IN_TARGET} FROM ",
        f") AS {alias}\n{join} (SELECT *, TRUE AS {_IN_SOURCE} FROM {stmt.source}) AS {source_alias}\nON ({stmt.on})",
    )


def _carried(table: Target, cases: Cases, *done: Matched) -> list[str]:
    """The columns that every level hands on."""
    olds = [f"`_ebla_old{i}`" for i in range(len(table.stored))]
    return [*olds, _IN_TARGET, _IN_SOURCE, *(_RESULT[matched] for matched in done if cases[matched])]


def _source_scope(table: Target, sql: Sql, source: str, cases: Cases) -> Sql:
    """What WHEN NOT MATCHED makes of the source's columns."""
    case = f"{cases['not_matched']} AS {_RESULT['not_matched']}"
    output = [*_carried(table, cases, "matched"), case]
    return sql.within(f"SELECT {comma(output)}\nFROM (\n", f"\n) AS {quote(source)}")


def _target_scope(table: Target, sql: Sql, cases: Cases) -> Sql:
    """The table's columns under their own names again, and what WHEN NOT MATCHED BY SOURCE makes of them."""
    named = [as_column(f"`_ebla_old{i}`", name) for i, name in enumerate(table.stored)]
    carried = _carried(table, cases, "matched", "not_matched")
    case = f"{cases['not_matched_by_source']} AS {_RESULT['not_matched_by_source']}"
    return sql.within(f"SELECT {comma([*named, *carried])}\nFROM (\n", "\n)").within(
        f"SELECT {comma([*carried, case])}\nFROM (\n", f"\n) AS {quote(table.alias)}"
    )


def _fired(table: Target, sql: Sql, clauses: Sequence[Clause], cases: Cases) -> Sql:
    """The rows for which a clause fired, as `resolved` wants them; an ambiguous match fails here."""
    olds = [f"`_ebla_old{i}`" for i in range(len(table.stored))]
    results = [_RESULT[matched] for matched, case in cases.items() if case]
    row = results[0] if len(results) == 1 else f"coalesce({', '.join(results)})"
    # Rows that are inserted have no key in the table; each gets a number, so that they do not all meet
    # in the one window partition of NULL.
    number = f"IF({_IN_TARGET} IS NULL, monotonically_increasing_id(), NULL) AS `_ebla_number`"
    sql = sql.within(f"SELECT {comma([*olds, number, f'{row} AS `_ebla_row`'])}\nFROM (\n", "\n)")
    sql = sql.within("SELECT * FROM (\n", "\n) WHERE `_ebla_row` IS NOT NULL")
    kind, where = _chosen(clauses, lambda clause: f"'{clause.stmt.action}'"), ""
    if cases["matched"]:
        by = [olds[table.stored.index(name)] for name in table.key] + ["`_ebla_number`"]
        seen = f"row_number() OVER (PARTITION BY {', '.join(by)} ORDER BY `_ebla_number`) AS `_ebla_seen`"
        sql = sql.within(f"SELECT *, {seen} FROM (\n", "\n)")
        if _only_deletes(clauses):
            where = " WHERE `_ebla_seen` = 1"
        else:
            message = (
                f"MERGE INTO {table.table}: {MERGE_CARDINALITY}; make the source unique, or narrow the ON condition"
            )
            kind = f"IF(`_ebla_seen` > 1, raise_error({quote_string(message)}), {kind})"
    news = [as_column(_new_value(table, clauses, i), f"_ebla_new{i}") for i in range(len(olds))]
    return sql.within(f"SELECT {comma([*olds, *news, f'{kind} AS `_ebla_kind`'])}\nFROM (\n", f"\n){where}")


def _only_deletes(clauses: Sequence[Clause]) -> bool:
    """Whether WHEN MATCHED is a lone DELETE: deleting twice is deleting."""
    matched = [clause.stmt for clause in clauses if clause.stmt.matched == "matched"]
    return [(clause.action, clause.condition) for clause in matched] == [("delete", None)]


def _new_value(table: Target, clauses: Sequence[Clause], place: int) -> str:
    name = table.stored[place]

    def value(clause: Clause) -> str:
        if name in clause.values:
            field = list(clause.values).index(name)
            return table.stored_value(name, f"`_ebla_row`.`k{clause.number}`.`v{field}`")
        return table.ungiven(name) if clause.stmt.action == "insert" else f"`_ebla_old{place}`"

    return _chosen(clauses, value)


def _chosen(clauses: Sequence[Clause], value: Callable[[Clause], str]) -> str:
    """A value that depends on which clause fired."""
    branches = " ".join(f"WHEN {clause.number} THEN {value(clause)}" for clause in clauses)
    return f"CASE `_ebla_row`.`clause` {branches} END"
