from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc32.h" nogil:
    uint32_t k07_crc32(uint32_t crc, const uint8_t *data, size_t length)
    const char *k07_crc32_kernel()
    int k07_crc32_select(const char *name)
