"""Values that the catalog keeps as JSON, read by their types: an error names the field that does not fit."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

_adapters: dict[object, TypeAdapter[Any]] = {}


def read_text(kind: type[T], text: str) -> T:
    """The value that a JSON text has; raises `ValueError` with every field that does not fit the type."""
    try:
        return _adapter(kind).validate_json(text)
    except ValidationError as error:
        raise ValueError(_fields(error)) from None


def read(kind: type[T], value: object) -> T:
    """The same for a part of a JSON text that was read already."""
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(_fields(error)) from None


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Made when a value of the type is first read: it takes milliseconds, which a command without one does not pay."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _fields(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
