from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class Block:
    cdef uint8_t *data
    cdef readonly Py_ssize_t nbytes
    cdef size_t _capacity

    @staticmethod
    cdef Block allocate(Py_ssize_t nbytes)
    @staticmethod
    cdef Block zeros(Py_ssize_t nbytes)
    cdef int resize(self, Py_ssize_t nbytes) except -1


cdef inline int64_t *as_int64(Block block) noexcept nogil:
    return <int64_t *> block.data


cdef inline int32_t *as_int32(Block block) noexcept nogil:
    return <int32_t *> block.data


cdef const uint8_t *address(object view) except? NULL
cdef object read_only_view(object data)
