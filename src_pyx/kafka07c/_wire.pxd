"""Big-endian loads and stores at any alignment. Who calls has checked the bounds."""

from libc.stdint cimport int32_t, uint8_t, uint32_t


cdef inline uint32_t load_uint32(const uint8_t *p) noexcept nogil:
    return (<uint32_t> p[0] << 24) | (<uint32_t> p[1] << 16) | (<uint32_t> p[2] << 8) | p[3]


cdef inline int32_t load_int32(const uint8_t *p) noexcept nogil:
    return <int32_t> load_uint32(p)


cdef inline void store_int32(uint8_t *p, uint32_t value) noexcept nogil:
    p[0] = value >> 24
    p[1] = (value >> 16) & 0xFF
    p[2] = (value >> 8) & 0xFF
    p[3] = value & 0xFF
