/* CRC-32 by 512-bit carry-less multiplication (AVX-512 and VPCLMULQDQ), to be inlined into the loops that use it.
 *
 * A message is taken as 64-byte blocks, the first of them partial: its absent bytes come first and are zero (a masked
 * load, which reads none of them), and a start value per number of absent bytes makes up for them. So there is no tail.
 * Blocks are folded on blocks; the four lanes of the last one are brought to 96 bits each, added, and reduced, which
 * can be put off and done for four messages at once. The mathematics is in crc32_tables.h.
 */
#ifndef K07_CRC32_VPCLMUL_H
#define K07_CRC32_VPCLMUL_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "crc32_tables.h"

#define VPCLMUL_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmul,bmi2")))
#define VPCLMUL_INLINE static inline __attribute__((always_inline)) VPCLMUL_TARGET

static inline int vpclmul_available(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("bmi2");
}

VPCLMUL_INLINE __m512i vpclmul_constant(const k07_pair *pair) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)pair));
}

/* Each lane times its constant; the two halves' products and `add` added up. */
VPCLMUL_INLINE __m512i vpclmul_fold(__m512i lanes, __m512i constant, __m512i add) {
    __m512i low = _mm512_clmulepi64_epi128(lanes, constant, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lanes, constant, 0x11);
    return _mm512_ternarylogic_epi64(low, high, add, 0x96);
}

/* The bytes that make `length` (not 0) a multiple of 64 */
static inline size_t vpclmul_absent(size_t length) {
    return -length & 63;
}

/* A message of at least one byte, folded to one block. `start` goes to the front of its first, filled-up block. */
VPCLMUL_INLINE __m512i vpclmul_block(const uint8_t *data, size_t length, __m512i start) {
    size_t absent = vpclmul_absent(length);
    const uint8_t *block = (const uint8_t *)((uintptr_t)data - absent);
    size_t blocks = (length + absent) / 64 - 1;
    __m512i v = _mm512_xor_si512(_mm512_maskz_loadu_epi8(~(__mmask64)0 << absent, block), start);
    if (blocks == 0) return v;
    __m512i by64 = vpclmul_constant(&k07_tables.by64);
    for (block += 64; blocks % 4 != 0 || blocks < 8; block += 64) {
        v = vpclmul_fold(v, by64, _mm512_loadu_si512(block));
        if (--blocks == 0) return v;
    }
    /* four chains, so that the multiplier never waits */
    __m512i by256 = vpclmul_constant(&k07_tables.by256);
    __m512i a = vpclmul_fold(v, by64, _mm512_loadu_si512(block)), b = _mm512_loadu_si512(block + 64),
            c = _mm512_loadu_si512(block + 128), d = _mm512_loadu_si512(block + 192);
    while (block += 256, blocks -= 4) {
        a = vpclmul_fold(a, by256, _mm512_loadu_si512(block));
        b = vpclmul_fold(b, by256, _mm512_loadu_si512(block + 64));
        c = vpclmul_fold(c, by256, _mm512_loadu_si512(block + 128));
        d = vpclmul_fold(d, by256, _mm512_loadu_si512(block + 192));
    }
    __m512i by128 = vpclmul_constant(&k07_tables.by128);
    d = vpclmul_fold(c, by64, d);
    b = vpclmul_fold(a, by64, b);
    return vpclmul_fold(b, by128, d);
}

/* Four messages' blocks to their CRCs, not yet inverted: each in the third 32-bit word of its lane. */
VPCLMUL_INLINE __m512i vpclmul_reduce4(const __m512i block[4]) {
    __m512i last = _mm512_loadu_si512(k07_tables.last), none = _mm512_setzero_si512();
    __m512i p = vpclmul_fold(block[0], last, none), q = vpclmul_fold(block[1], last, none),
            r = vpclmul_fold(block[2], last, none), s = vpclmul_fold(block[3], last, none);
    /* add up the lanes of each, and leave a sum per lane */
    __m512i pq = _mm512_xor_si512(_mm512_shuffle_i64x2(p, q, 0x44), _mm512_shuffle_i64x2(p, q, 0xEE));
    __m512i rs = _mm512_xor_si512(_mm512_shuffle_i64x2(r, s, 0x44), _mm512_shuffle_i64x2(r, s, 0xEE));
    __m512i w = _mm512_xor_si512(_mm512_shuffle_i64x2(pq, rs, 0x88), _mm512_shuffle_i64x2(pq, rs, 0xDD));
    __m512i barrett = vpclmul_constant(&k07_tables.barrett);
    __m512i quotient = _mm512_clmulepi64_epi128(w, barrett, 0x00);
    return _mm512_xor_si512(w, _mm512_clmulepi64_epi128(quotient, barrett, 0x10));
}

#endif
