"""CRC-32 as zlib has it, by the fastest kernel of this CPU, the walk over plain entries that checks with it, and encoding.

The kernels are C (c/crc32.h, c/walk.h, c/encode.h) and chosen at run time. ``KAFKA07C_KERNEL`` in the environment names one
instead; a name that this CPU cannot run fails the import rather than running another.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer


cdef extern from "crc32.h" nogil:
    uint32_t k07_crc32(uint32_t crc, const uint8_t *data, size_t length)
    uint32_t k07_crc32_copy(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to)
    const char *k07_crc32_kernel()
    int k07_crc32_select(const char *name)
    const char *k07_crc32_available(int i)
    const char *k07_crc32_compiled(int i)


cdef extern from "compiled.h":
    const char *K07_COMPILER
    const char *K07_COMPILED_FOR


cdef extern from "walk.h" nogil:
    int k07_walk_plain(k07_walk *walk)


cdef extern from "encode.h" nogil:
    uint8_t *k07_encode(uint8_t *out, uint8_t *end, const k07_payload *payloads, size_t count, int magic,
                        int attributes)


cdef enum:
    NOGIL_BYTES = 4096  # below this the GIL costs more than the work


cdef uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil:
    return k07_crc32(crc, data, length)


cdef int walk_plain(k07_walk *walk) noexcept nogil:
    return k07_walk_plain(walk)


cdef uint8_t *encode(uint8_t *out, uint8_t *end, const k07_payload *payloads, size_t count, int magic,
                     int attributes) noexcept nogil:
    return k07_encode(out, end, payloads, count, magic, attributes)


def crc32(data, value=0):
    """CRC-32 of ``data`` (any contiguous buffer) as an unsigned int, equal to ``zlib.crc32(data, value)``.

    ``value`` is the CRC of what came before. The GIL is released for large buffers. Raises TypeError for what is no
    buffer, BufferError for one that is not contiguous.
    """
    cdef Py_buffer view
    cdef uint32_t crc = start_value(value)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < NOGIL_BYTES:
            return k07_crc32(crc, <const uint8_t *> view.buf, view.len)
        with nogil:
            crc = k07_crc32(crc, <const uint8_t *> view.buf, view.len)
        return crc
    finally:
        PyBuffer_Release(&view)


def crc32_copy(data, into, value=0):
    """As :func:`crc32`, and ``data`` goes into ``into`` (a writable buffer of at least its size) in the same pass.

    The two must not overlap, and nobody may write to ``data`` meanwhile. Raises ValueError if ``into`` is too small.
    """
    cdef Py_buffer view, room
    cdef uint32_t crc = start_value(value)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(into, &room, PyBUF_WRITABLE)
        try:
            if room.len < view.len:
                raise ValueError(f"{view.len} bytes do not go into a buffer of {room.len}")
            with nogil:
                crc = k07_crc32_copy(crc, <const uint8_t *> view.buf, view.len, <uint8_t *> room.buf)
            return crc
        finally:
            PyBuffer_Release(&room)
    finally:
        PyBuffer_Release(&view)


cdef uint32_t start_value(object value) except? 0:
    if not hasattr(value, "__index__"):
        raise TypeError(f"value is {value!r}, {type(value).__name__}; it must be an int")
    return value & 0xFFFFFFFF


def kernel():
    """The name of the kernel in use."""
    return (<bytes> k07_crc32_kernel()).decode()


def kernels():
    """The names of the kernels that this CPU can run, fastest first."""
    names = []
    while k07_crc32_available(len(names)) is not NULL:
        names.append((<bytes> k07_crc32_available(len(names))).decode())
    return names


def compiled_kernels():
    """The names of the kernels that this build has, whether this CPU can run them or not, fastest first."""
    names = []
    while k07_crc32_compiled(len(names)) is not NULL:
        names.append((<bytes> k07_crc32_compiled(len(names))).decode())
    return names


def compiler():
    """The compiler that made this build, with its version."""
    return (<bytes> K07_COMPILER).decode()


def compiled_for():
    """What this build was compiled for, in words (see c/compiled.h): machine, C library, "optimized" or not, and so on."""
    return (<bytes> K07_COMPILED_FOR).decode().split()


def select_kernel(name):
    """Makes ``name`` the kernel of the whole process, for tests and measurements; "auto" is the best one.

    Not to be called while another thread scans. Raises ValueError for a name that is unknown or not for this CPU.
    """
    if k07_crc32_select(name.encode()):
        raise ValueError(f"CRC kernel {name!r} is unknown or not for this CPU; it has {', '.join(kernels())}")


select_kernel(os.environ.get("KAFKA07C_KERNEL") or "auto")
