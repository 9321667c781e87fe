/* CRC-32 by 512-bit carry-less multiplication (AVX-512 and VPCLMULQDQ), to be inlined into the loops that use it.
 *
 * A message is taken as blocks of 128 bytes, the first of them partial: its absent bytes come first and are zero (by
 * masked loads, which read none of them), and a start value per number of absent bytes makes up for them. So there is
 * no tail, and up to 128 bytes no branch that depends on the length. Blocks are folded on blocks; the four lanes of
 * what is left are brought to 96 bits each, added up, and reduced, which can be put off and done for four messages at
 * once. The mathematics is in crc32_tables.h.
 */
#ifndef K07_CRC32_VPCLMUL_H
#define K07_CRC32_VPCLMUL_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc32_tables.h"

#define VPCLMUL_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmul,bmi2")))
#define VPCLMUL_INLINE static inline __attribute__((always_inline)) VPCLMUL_TARGET

/* The CPU has the instructions and the system keeps the 512-bit registers (the compiler's run time asks XCR0) */
static inline int vpclmul_available(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("bmi2");
}

/* 4 bytes as they are, the rest zero */
VPCLMUL_INLINE __m128i vpclmul_load4(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm_cvtsi32_si128(word);
}

VPCLMUL_INLINE __m512i vpclmul_constant(const k07_pair *pair) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)pair));
}

/* Each lane times its constant: the products of its two halves, and `add`, added up */
VPCLMUL_INLINE __m512i vpclmul_fold(__m512i lanes, __m512i constant, __m512i add) {
    __m512i low = _mm512_clmulepi64_epi128(lanes, constant, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lanes, constant, 0x11);
    return _mm512_ternarylogic_epi64(low, high, add, 0x96);
}

/* The bytes that make `length` (not 0) a multiple of 128 */
static inline size_t vpclmul_absent(size_t length) {
    return -length & 127;
}

/* A message of at least one byte, folded to 64 bytes. `start` goes to the front of its first, filled-up block. Two
 * chains, one for each half of the blocks, so that the multiplier seldom waits. */
VPCLMUL_INLINE __m512i vpclmul_block(const uint8_t *data, size_t length, __m512i start) {
    size_t absent = vpclmul_absent(length);
    const uint8_t *block = (const uint8_t *)((uintptr_t)data - absent);
    uint64_t part = ~(uint64_t)0 << (absent & 63), both = (uint64_t)(absent / 64) - 1; /* all ones or none */
    __m512i a = _mm512_maskz_loadu_epi8(part & both, block);
    __m512i b = _mm512_maskz_loadu_epi8(part | both, block + 64);
    a = _mm512_xor_si512(a, start);
    __m512i by128 = vpclmul_constant(&k07_tables.by128);
    for (size_t blocks = (length - 1) / 128; blocks > 0; blocks--) {
        block += 128;
        a = vpclmul_fold(a, by128, _mm512_loadu_si512(block));
        b = vpclmul_fold(b, by128, _mm512_loadu_si512(block + 64));
    }
    return vpclmul_fold(a, vpclmul_constant(&k07_tables.by64), b);
}

/* The lanes of the last 64 bytes brought to 96 bits each: W, in four parts to be added up. `add` is added to them. */
VPCLMUL_INLINE __m512i vpclmul_parts(__m512i block, __m512i add) {
    return vpclmul_fold(block, _mm512_loadu_si512(k07_tables.last), add);
}

/* Four messages' W, in parts, to their CRCs, not yet inverted: each in the third 32-bit word of its lane. */
VPCLMUL_INLINE __m512i vpclmul_reduce4(__m512i p, __m512i q, __m512i r, __m512i s) {
    __m512i pq = _mm512_xor_si512(_mm512_shuffle_i64x2(p, q, 0x44), _mm512_shuffle_i64x2(p, q, 0xEE));
    __m512i rs = _mm512_xor_si512(_mm512_shuffle_i64x2(r, s, 0x44), _mm512_shuffle_i64x2(r, s, 0xEE));
    __m512i w = _mm512_xor_si512(_mm512_shuffle_i64x2(pq, rs, 0x88), _mm512_shuffle_i64x2(pq, rs, 0xDD));
    __m512i barrett = vpclmul_constant(&k07_tables.barrett);
    __m512i quotient = _mm512_clmulepi64_epi128(w, barrett, 0x00);
    return _mm512_xor_si512(w, _mm512_clmulepi64_epi128(quotient, barrett, 0x10));
}

#endif
