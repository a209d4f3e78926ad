"""`CHECK` and `REPAIR`: is what is stored what it should be?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ebla.indexes import index_check, index_repair
from ebla.spark.result import Result
from ebla.sql import statements as st
from ebla.tables import compare, table_check
from ebla.tables.parts import CheckSpeed
from ebla.views import view_check

if TYPE_CHECKING:
    from ebla.api.database import Database


def run(database: Database, statement: st.CheckStatement) -> Result:
    context, pins = database.context, database.pins
    pace = CheckSpeed.of(context.settings, statement.options)
    match statement:
        case st.Check(what="index", name=name, percent=percent):
            return Result(table=compare.report(index_check.check_index(context, pins, name, percent, pace)))
        case st.Check(what="view", name=name, percent=percent):
            return Result(table=compare.report(view_check.check_view(context, pins, name, percent, pace)))
        case st.Check(name=name, percent=percent):
            return Result(table=table_check.check_table(context, pins, name, percent, pace).table())
        case st.Repair(what="index", name=name):
            return Result(table=compare.report(index_repair.repair(context, name, pace)))
        case st.Repair(what="view", name=name):
            found = view_check.check_view(context, pins, name, None, pace)
            if found.wrong:
                database.epochs.repair(name)
            return Result(table=compare.report(replace(found, repaired=True)))
        case st.Repair(name=name):
            return Result(table=table_check.repair(context, pins, name, pace).table())
