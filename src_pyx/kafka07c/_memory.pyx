"""Memory that the core owns (Block), and read-only views of memory that others own.

Large blocks are used again when they are freed (c/recycler.h): a few megabytes stay with the process, see kept_blocks().
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdlib cimport realloc
from libc.string cimport memset


cdef extern from "recycler.h" nogil:
    void *k07_take(size_t nbytes, size_t *capacity)
    void k07_give(void *data, size_t capacity)
    void k07_forget()
    int k07_kept_count()
    size_t k07_kept_bytes


@cython.final
cdef class Block:
    """A block of memory of our own, exported read-only through the buffer protocol; it goes with its last export."""

    @staticmethod
    cdef Block allocate(Py_ssize_t nbytes):
        cdef Block block = Block.__new__(Block)
        block.data = <uint8_t *> k07_take(nbytes, &block._capacity)
        if block.data is NULL:
            raise MemoryError(f"no memory for {nbytes} bytes")
        block.nbytes = nbytes
        return block

    @staticmethod
    cdef Block zeros(Py_ssize_t nbytes):
        cdef Block block = Block.allocate(nbytes)
        memset(block.data, 0, nbytes)
        return block

    cdef int resize(self, Py_ssize_t nbytes) except -1:
        """Only while nothing is exported: the address may change."""
        cdef size_t capacity = max(nbytes, 1)
        cdef uint8_t *data = <uint8_t *> realloc(self.data, capacity)
        if data is NULL:
            raise MemoryError(f"no memory for {nbytes} bytes")
        self.data = data
        self._capacity = capacity
        self.nbytes = nbytes
        return 0

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.nbytes, 1, flags)

    def __dealloc__(self):
        k07_give(self.data, self._capacity)


def kept_blocks():
    """How many freed blocks are kept to be used again, and their bytes together: (int, int)."""
    return k07_kept_count(), k07_kept_bytes


def forget_blocks():
    """Gives the kept blocks back to the system, for tests and for a process that will scan no more."""
    k07_forget()


cdef const uint8_t *address(object view) except? NULL:
    """Where the bytes of a memoryview begin; the caller keeps ``view`` alive and to itself."""
    return <const uint8_t *> PyMemoryView_GET_BUFFER(view).buf


cdef object read_only_view(object data):
    """A read-only memoryview of unsigned bytes over any C-contiguous buffer, of our own: nobody else can release it."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the buffer is not contiguous: pass a contiguous one (numpy.ascontiguousarray, bytes())")
    if view.nbytes == 0:
        return memoryview(b"")
    if view.ndim != 1 or view.format != "B":
        view = view.cast("B")
    return view.toreadonly()
