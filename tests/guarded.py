"""Memory between two pages that nobody may touch: a read or write past either end of it kills the process."""

from __future__ import annotations

import ctypes
import mmap

_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """Room for ``size`` bytes and more, ending and beginning at a guard page.

    Each call of :meth:`at_start` or :meth:`at_end` overwrites what the last one gave.
    """

    def __init__(self, size: int):
        page = mmap.PAGESIZE
        self._first = page
        self._last = page + -(-size // page) * page
        self._pages = mmap.mmap(-1, self._last + page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        for guard in (0, self._last):
            if _libc.mprotect(base + guard, page, _PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self._view = memoryview(self._pages)

    def at_start(self, data: bytes) -> memoryview:
        """``data`` with the guard page right before it."""
        return self._place(self._first, data)

    def at_end(self, data: bytes) -> memoryview:
        """``data`` with the guard page right after it."""
        return self._place(self._last - len(data), data)

    def past_end(self) -> memoryview:
        """The first byte of the guard page, to see that it kills."""
        return self._view[self._last : self._last + 1]

    def before_start(self) -> memoryview:
        return self._view[self._first - 1 : self._first]

    def _place(self, start: int, data: bytes) -> memoryview:
        room = self._view[start : start + len(data)]
        room[:] = data
        return room
