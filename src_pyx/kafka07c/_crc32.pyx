"""CRC-32 as zlib has it, by the fastest kernel of this CPU (c/crc32.c)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


def crc32(data, value=0):
    """CRC-32 of ``data`` (any contiguous buffer) as an unsigned int, equal to ``zlib.crc32(data, value)``.

    ``value`` is the CRC of what came before. The GIL is released for large buffers. Raises TypeError for what is no
    buffer, BufferError for one that is not contiguous.
    """
    cdef Py_buffer view
    cdef uint32_t crc = value & 0xFFFFFFFF
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < 4096:  # below this the GIL costs more than the work
            return k07_crc32(crc, <const uint8_t *> view.buf, view.len)
        with nogil:
            crc = k07_crc32(crc, <const uint8_t *> view.buf, view.len)
        return crc
    finally:
        PyBuffer_Release(&view)


def kernel():
    """The name of the CRC kernel in use."""
    return (<bytes> k07_crc32_kernel()).decode()
