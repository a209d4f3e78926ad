"""What a steady load did in one second."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Second:
    """What happened in one second, and how things stood at its end."""

    at: float
    rows: int = 0
    commits: int = 0
    late_s: float = 0.0
    """How far the writers are behind their rate."""
    visible_s: list[float] = field(default_factory=list)
    query_s: list[float] = field(default_factory=list)
    lag_s: float = 0.0
    """The age of the oldest commit that a view does not show."""
    python_mib: float = 0.0
    jvm_mib: float = 0.0
    files: int = 0
    catalog_mib: float = 0.0
