"""The routes of the HTTP API that every node has, in the order of its description."""

from __future__ import annotations

from ebla.server import changes, events, health, history, names, query, sql, status, tables, tablets

ROUTERS = tuple(one.router for one in (health, sql, query, tables, names, changes, events, status, tablets, history))
