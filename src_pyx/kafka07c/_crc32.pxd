"""The C kernels, for the rest of the core: this module alone holds them, so that one choice of kernel serves all."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef extern from "walk.h" nogil:
    enum:
        K07_END
        K07_CUT
        K07_FULL
        K07_WRAPPER
        K07_BAD_SIZE
        K07_BAD_MAGIC
        K07_BAD_CODEC
        K07_BAD_CRC
    ctypedef struct k07_walk:
        const uint8_t *data
        int64_t length
        int64_t pos
        int64_t base
        int64_t *offsets
        int32_t *lengths
        int64_t count
        int64_t capacity


cdef extern from "encode.h" nogil:
    ctypedef struct k07_payload:
        const uint8_t *data
        int64_t length


cdef uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil
cdef int walk_plain(k07_walk *walk) noexcept nogil
cdef uint8_t *encode(uint8_t *out, uint8_t *end, const k07_payload *payloads, size_t count, int magic,
                     int attributes) noexcept nogil
