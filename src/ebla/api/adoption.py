"""Views of a catalog from before there were building tasks get the tasks that they lack when it is opened."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from ebla.algebra.build_method import DrivenBuild
from ebla.base.ids import NodeId, Version
from ebla.catalog import build_tasks, reads
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.tasks import Build
from ebla.relations import views as definition
from ebla.relations.shapes import build_method
from ebla.relations.tasks import NO_RELATION, first_tasks
from ebla.relations.views import View
from ebla.views import replace as replace_views


def adopt(catalog: Catalog, node: NodeId) -> None:
    """Give views the tasks that they lack. Then end the replacing of views that has begun."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        builds = build_tasks.builds(connection)
        views = [v for v in definition.all_views(connection) if v.building and v.relation.id not in builds]
        updates = tuple(_tasks_of(node, connection, view) for view in views)
        return c.Decision(reason="views from before there were building tasks", updates=updates) if updates else None

    catalog.decide(decide, node=node)
    replace_views.exchange(catalog, node)


def _tasks_of(node: NodeId, connection: Connection, view: View) -> c.CreateBuild:
    how = build_method(view, {n: reads.relation(connection, n) for n in view.inputs})
    base = None if how.base is None else reads.relation(connection, how.base)
    tasks = first_tasks(connection, base, node, together=not isinstance(how, DrivenBuild))
    build = Build(view=view.relation.id, base=NO_RELATION if base is None else base.id)
    return c.CreateBuild(build=build, tasks=tuple(replace(task, view=view.relation.id) for task in tasks))
