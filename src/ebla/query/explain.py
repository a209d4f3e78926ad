"""A plan for people and for programs: the values that the reader carries out."""

from __future__ import annotations

from ebla.predicates.select import in_words
from ebla.query.plan import Plan


def as_text(plan: Plan) -> str:
    extent, request = plan.extent, plan.request
    lines = [f"first {request.limit} of {request.relation.name}"]
    lines.append(f"  path: {_path(plan)}")
    lines += [f"  {name}: {text}" for name, text in _steps(plan) if text]
    lines.append(f"  runs: {extent.runs_read} of {extent.runs}, row groups: {at_most(plan)} of {extent.groups}")
    in_files = f"{extent.level0_files} runs in their files, the others " if extent.level0_files else ""
    lines.append(f"  level 0: {extent.level0_runs} runs, {extent.level0_rows} rows, {in_files}merged in memory")
    lines += [f"  not taken: {name}, {_ms(cost)} instead of {_ms(plan.cost_us)}" for name, cost in plan.others]
    lines += [f"  not usable: {name}: {why}" for name, why in plan.unfit]
    lines.append("  no Spark job")
    return "\n".join(lines)


def at_most(plan: Plan) -> str:
    """A seek stops when it has its rows, so it may read fewer."""
    return f"{'' if plan.scan else 'at most '}{plan.extent.groups_read}"


def _path(plan: Plan) -> str:
    fitted = plan.fitted
    names = {c.physical: c.name for c in (*plan.request.relation.columns, *fitted.path.relation.columns)}
    key = ", ".join(names[k.path] + (" DESC" if k.descending else "") for k in fitted.path.key)
    kind = "primary key" if fitted.path.is_base else "index"
    way = "scan" if plan.scan else "backwards" if fitted.backwards else "forwards"
    return f"{fitted.path.name} ({key}), {kind}, {way}"


def _steps(plan: Plan) -> list[tuple[str, str]]:
    fitted, request = plan.fitted, plan.request
    left = {*fitted.filters, *fitted.late}
    sought = [str(f) for f in request.where if f not in left]
    order = ", ".join(map(str, request.order)) if not request.any_order else ""
    if not order:
        sort = ""
    elif plan.scan:
        sort = f"{order} (all rows are sorted)"
    elif fitted.exact:
        sort = f"{order} (as read)"
    else:
        inside = ", ".join(map(str, request.order[: fitted.sorted]))
        sort = f"{order} (sorted after reading{f', within equal {inside}' if inside else ''})"
    return [
        ("sought" if not plan.scan else "row groups by", " AND ".join(sought)),
        ("true of all its rows", " AND ".join(map(in_words, sorted(fitted.path.promises)))),
        ("filtered", " AND ".join(map(str, fitted.filters))),
        ("filtered after the fetch", " AND ".join(map(str, fitted.late))),
        ("order", sort),
        ("fetch", "" if fitted.covering else f"rows by key from {request.relation.name}"),
    ]


def _ms(cost_us: float) -> str:
    return f"about {cost_us / 1e3:.1f} ms"


def as_json(plan: Plan) -> dict[str, object]:
    fitted, extent = plan.fitted, plan.extent
    return {
        "relation": plan.request.relation.name,
        "path": fitted.path.name,
        "way": "scan" if plan.scan else "seek",
        "backwards": fitted.backwards,
        "leading_columns": fitted.used,
        "filters": [str(f) for f in fitted.filters],
        "late_filters": [str(f) for f in fitted.late],
        "sort": bool(plan.scan or not fitted.exact) and not plan.request.any_order,
        "fetch": not fitted.covering,
        "unfit": dict(plan.unfit),
        "runs": extent.runs,
        "runs_read": extent.runs_read,
        "row_groups": extent.groups,
        "row_groups_read": extent.groups_read,
        "level0_runs": extent.level0_runs,
        "level0_rows": extent.level0_rows,
        "level0_files": extent.level0_files,
    }
