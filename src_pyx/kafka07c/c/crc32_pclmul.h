/* CRC-32 by 128-bit carry-less multiplication (PCLMULQDQ, with SSE4.1), to be inlined into the loops that use it.
 *
 * As crc32_vpclmul.h, in blocks of 16 bytes. There are no masked loads, so the first, partial block is made of loads
 * that stay inside the message.
 */
#ifndef K07_CRC32_PCLMUL_H
#define K07_CRC32_PCLMUL_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc32_tables.h"

#define PCLMUL_TARGET __attribute__((target("sse4.1,pclmul")))
#define PCLMUL_INLINE static inline __attribute__((always_inline)) PCLMUL_TARGET

static inline int pclmul_available(void) {
    return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
}

PCLMUL_INLINE __m128i pclmul_load(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

PCLMUL_INLINE __m128i pclmul_fold(__m128i v, __m128i constant, __m128i add) {
    __m128i low = _mm_clmulepi64_si128(v, constant, 0x00);
    __m128i high = _mm_clmulepi64_si128(v, constant, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), add);
}

static inline size_t pclmul_absent(size_t length) {
    return -length & 15;
}

/* 1 to 15 bytes as the end of a block that begins with zeros */
PCLMUL_INLINE __m128i pclmul_short(const uint8_t *data, size_t length) {
    if (length >= 8) {
        uint64_t begin, end;
        memcpy(&begin, data, 8);
        memcpy(&end, data + length - 8, 8);
        return _mm_set_epi64x((long long)end, (long long)(begin << 8 * (15 - length) << 8));
    }
    uint64_t word;
    if (length >= 4) {
        uint32_t begin, end;
        memcpy(&begin, data, 4);
        memcpy(&end, data + length - 4, 4);
        word = (uint64_t)end << 32 | (uint64_t)begin << 8 * (8 - length);
    } else {
        size_t middle = length / 2;
        word = (uint64_t)data[length - 1] << 56 | (uint64_t)data[middle] << 8 * (8 - length + middle) |
               (uint64_t)data[0] << 8 * (8 - length);
    }
    return _mm_set_epi64x((long long)word, 0);
}

/* The first `16 - absent` bytes of at least 16, as pclmul_short() gives them */
PCLMUL_INLINE __m128i pclmul_front(const uint8_t *data, size_t absent) {
    static const uint8_t move[32] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                     0x80, 0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,    4,    5,
                                     6,    7,    8,    9,    10,   11,   12,   13,   14,   15};
    return _mm_shuffle_epi8(pclmul_load(data), pclmul_load(move + 16 - absent));
}

/* 1 to 15 bytes, by stores that overlap */
PCLMUL_INLINE void pclmul_copy_short(uint8_t *to, const uint8_t *data, size_t length) {
    if (length >= 8) {
        uint64_t begin, end;
        memcpy(&begin, data, 8);
        memcpy(&end, data + length - 8, 8);
        memcpy(to, &begin, 8);
        memcpy(to + length - 8, &end, 8);
    } else if (length >= 4) {
        uint32_t begin, end;
        memcpy(&begin, data, 4);
        memcpy(&end, data + length - 4, 4);
        memcpy(to, &begin, 4);
        memcpy(to + length - 4, &end, 4);
    } else {
        uint8_t begin = data[0], middle = data[length / 2], end = data[length - 1];
        to[0] = begin;
        to[length / 2] = middle;
        to[length - 1] = end;
    }
}

/* The next 16 bytes, and a copy of them, if one is wanted */
PCLMUL_INLINE __m128i pclmul_next(const uint8_t *data, ptrdiff_t to_copy, int copy) {
    __m128i bytes = pclmul_load(data);
    if (copy) _mm_storeu_si128((__m128i *)((uintptr_t)data + (uintptr_t)to_copy), bytes);
    return bytes;
}

/* A message of at least one byte, folded to one block. `start` goes to the front of its first, filled-up block.
 * With `copy`, a constant, the bytes go to `to` as well, as they are loaded, and nothing outside. */
PCLMUL_INLINE __m128i pclmul_block(const uint8_t *data, size_t length, __m128i start, uint8_t *to, int copy) {
    ptrdiff_t to_copy = copy ? (ptrdiff_t)((uintptr_t)to - (uintptr_t)data) : 0;
    if (length < 16) {
        if (copy) pclmul_copy_short(to, data, length);
        return _mm_xor_si128(pclmul_short(data, length), start);
    }
    size_t absent = pclmul_absent(length);
    size_t blocks = (length + absent) / 16 - 1;
    __m128i v = _mm_xor_si128(pclmul_front(data, absent), start);
    __m128i by16 = pclmul_load(&k07_tables.by16);
    if (copy) pclmul_next(data, to_copy, 1);
    for (data += 16 - absent; blocks % 4 != 0; blocks--, data += 16) {
        v = pclmul_fold(v, by16, pclmul_next(data, to_copy, copy));
    }
    if (blocks == 0) return v;
    /* four chains, so that the multiplier seldom waits */
    __m128i by64 = pclmul_load(&k07_tables.by64);
    __m128i a = pclmul_fold(v, by16, pclmul_next(data, to_copy, copy)), b = pclmul_next(data + 16, to_copy, copy),
            c = pclmul_next(data + 32, to_copy, copy), d = pclmul_next(data + 48, to_copy, copy);
    for (data += 64; blocks > 4; blocks -= 4, data += 64) {
        a = pclmul_fold(a, by64, pclmul_next(data, to_copy, copy));
        b = pclmul_fold(b, by64, pclmul_next(data + 16, to_copy, copy));
        c = pclmul_fold(c, by64, pclmul_next(data + 32, to_copy, copy));
        d = pclmul_fold(d, by64, pclmul_next(data + 48, to_copy, copy));
    }
    d = pclmul_fold(c, by16, d);
    b = pclmul_fold(a, by16, b);
    return pclmul_fold(b, pclmul_load(&k07_tables.by32), d);
}

/* The 96 bits of W to the CRC */
PCLMUL_INLINE uint32_t pclmul_barrett(__m128i w) {
    __m128i constants = pclmul_load(&k07_tables.barrett);
    __m128i quotient = _mm_clmulepi64_si128(w, constants, 0x00);
    w = _mm_xor_si128(w, _mm_clmulepi64_si128(quotient, constants, 0x10));
    return ~(uint32_t)_mm_extract_epi32(w, 2);
}

PCLMUL_INLINE uint32_t pclmul_reduce(__m128i block) {
    return pclmul_barrett(pclmul_fold(block, pclmul_load(&k07_tables.last[3]), _mm_setzero_si128()));
}

#endif
