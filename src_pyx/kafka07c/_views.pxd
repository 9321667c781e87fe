from libc.stdint cimport int64_t

from kafka07c._scan cimport Columns


cdef class MessageSet:
    cdef readonly Columns _columns
    cdef readonly object topic
    cdef readonly object broker
    cdef readonly object partition
    cdef readonly object error
    cdef readonly int64_t base_offset
    cdef readonly int64_t valid_bytes

    cpdef int _raise_error(self) except -1


cdef class Message:
    cdef MessageSet _set
    cdef Py_ssize_t _i
