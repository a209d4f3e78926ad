"""Bytes on their way to the disk while a file is still being written.

What a program writes stays in memory until the system finds time, or a flush asks for it. A flush of a file of some
hundred MiB then takes long, and each other flush on the disk waits behind it: that of a writer, too. So the disk gets
each piece as soon as it is written. Beside writers the copier waits for the piece, in its turn (`ebla.base.pace`): a
slow disk makes turns and pauses longer, and never has more than a piece to do for it. That makes nothing durable: the
flush at the end stays, and finds little left to do. Where the system knows no such call, that flush does it all.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

PIECE_BYTES = 8 * 2**20
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4


def _found() -> Any:
    """The system's call, where it has one."""
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError, TypeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    call.restype = ctypes.c_int
    return call


_sync_file_range = _found()
_UNKNOWN = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE)
"""This system, or that of this file, does not do it."""


def begin(descriptor: int, at: int, size: int) -> None:
    """A piece is written: have the disk begin to store it. `OSError`: it does not take it."""
    _ask(descriptor, at, size, _WRITE)


def finish(descriptor: int, at: int, size: int) -> None:
    """The same, and wait for the disk."""
    _ask(descriptor, at, size, _WAIT_BEFORE | _WRITE | _WAIT_AFTER)


def _ask(descriptor: int, at: int, size: int, what: int) -> None:
    if _sync_file_range is None or _sync_file_range(descriptor, at, size, what) == 0:
        return
    number = ctypes.get_errno()
    if number not in _UNKNOWN:
        raise OSError(number, os.strerror(number))
