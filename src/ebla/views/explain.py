"""How a view is maintained, for people, for programs, and as a picture: the plans that epochs execute."""

from __future__ import annotations

from collections.abc import Mapping

from ebla.views.follow import Changed, Either, Looked, Picked, Scope, Values, WithoutNull
from ebla.views.plan import EpochPlan, FullRefresh, Incremental


def as_text(name: str, plans: Mapping[str, EpochPlan]) -> str:
    lines = [f"view {name}"]
    for table, made in sorted(plans.items()):
        lines.append(f"  change of {table}")
        lines += [f"    {line}" for line in _lines(made)]
    return "\n".join(lines)


def _lines(made: EpochPlan) -> list[str]:
    if isinstance(made, FullRefresh):
        return [f"full refresh: {made.reason}"]
    scope = ", ".join(made.scope)
    found: list[str] = []
    for one in made.affected:
        steps = list(reversed(_steps(one.values)))
        found += [f"{i}. {step}" for i, step in enumerate(steps, 1)]
    found.append(f"sync: recompute rows whose ({scope}) is affected, and write the difference")
    for narrowed in made.narrowed:
        how = "; ".join(reversed(_steps(narrowed.source)))
        found.append(f"  read {narrowed.table} by ({', '.join(narrowed.by)}): {how}")
    found += [f"  read {table} whole" for table in made.whole]
    return found


def _steps(values: Values) -> list[str]:
    """What is done to have these values, last step first."""
    match values:
        case Changed(table=table, columns=columns):
            return [f"transform: ({', '.join(columns)}) of the changed rows of {table}, old and new"]
        case Looked(table=table, by=by, columns=columns, source=source):
            return [f"grab: ({', '.join(columns)}) of {table} by ({', '.join(by)})", *_steps(source)]
        case Picked(source=source) | WithoutNull(source=source):
            return _steps(source)
        case Either(sources=sources):
            return [step for source in sources for step in _steps(source)]
        case Scope():
            return ["the affected values"]


def as_json(name: str, plans: Mapping[str, EpochPlan]) -> dict[str, object]:
    return {"view": name, "inputs": {table: _value(made) for table, made in sorted(plans.items())}}


def _value(made: EpochPlan) -> dict[str, object]:
    if isinstance(made, FullRefresh):
        return {"plan": "full refresh", "reason": made.reason}
    return {
        "plan": "incremental",
        "scope": list(made.scope),
        "affected": [{"input": a.table, "steps": list(reversed(_steps(a.values)))} for a in made.affected],
        "narrowed": [
            {"input": n.table, "by": list(n.by), "steps": list(reversed(_steps(n.source)))} for n in made.narrowed
        ],
        "whole": list(made.whole),
    }


def as_mermaid(name: str, plans: Mapping[str, EpochPlan]) -> str:
    lines = ["flowchart LR"]
    for number, (table, made) in enumerate(sorted(plans.items())):
        lines.append(f'    in{number}["change of {table}"]')
        previous = f"in{number}"
        steps = [made.reason] if isinstance(made, FullRefresh) else _picture(made)
        for i, step in enumerate(steps):
            here = f"s{number}_{i}"
            lines.append(f'    {previous} --> {here}["{step}"]')
            previous = here
        label = "full refresh" if isinstance(made, FullRefresh) else "sync"
        lines.append(f"    {previous} -->|{label}| view[({name})]")
    return "\n".join(lines)


def _picture(made: Incremental) -> list[str]:
    return [step for one in made.affected for step in reversed(_steps(one.values))]
