"""The console: pages that the wheel carries, served at `/` to every browser. Their data need a token.

`make console` compiles them from `console/` into `static/`.
"""

from __future__ import annotations

import functools
import gzip
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Response

from ebla.server.dependencies import PoolDep

router = APIRouter(include_in_schema=False)

FILES = Path(__file__).parent / "static"
ASSETS = FILES / "assets"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""A page runs and asks nothing but what this node serves."""

SAFE = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

Encodings = Annotated[str, Header()]


@router.get("/")
def page(pool: PoolDep) -> Response:
    """The page knows whether the node asks for tokens, and asks its user for one first."""
    text = (FILES / "index.html").read_text(encoding="utf-8")
    if not pool.options.users:
        text = text.replace('data-users="true"', 'data-users="false"')
    return Response(text, media_type="text/html", headers={**SAFE, "Cache-Control": "no-cache"})


@router.get("/assets/{name}")
def asset(name: str, accept_encoding: Encodings = "") -> Response:
    if name not in {file.name for file in ASSETS.iterdir()}:
        raise HTTPException(404, "Not Found")
    headers = {**SAFE, "Cache-Control": "public, max-age=31536000, immutable"}  # the name tells the content
    if "gzip" in accept_encoding:
        return Response(_compressed(name), media_type=_kind(name), headers={**headers, "Content-Encoding": "gzip"})
    return Response((ASSETS / name).read_bytes(), media_type=_kind(name), headers=headers)


def _kind(name: str) -> str:
    return KINDS[Path(name).suffix]


@functools.cache
def _compressed(name: str) -> bytes:
    return gzip.compress((ASSETS / name).read_bytes(), mtime=0)
