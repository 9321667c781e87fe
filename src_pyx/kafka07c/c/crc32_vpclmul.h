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
enum { VPCLMUL_LONG = 6 }; /* blocks from which on four chains pay for bringing them together */

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

VPCLMUL_INLINE void vpclmul_copy64(uint8_t *to, const uint8_t *data) {
    _mm512_storeu_si512(to, _mm512_loadu_si512(data));
}

/* The next 64 bytes; if a copy is wanted, they are also stored at `to` */
VPCLMUL_INLINE __m512i vpclmul_next(const uint8_t *data, uint8_t *to, int copy) {
    __m512i bytes = _mm512_loadu_si512(data);
    if (copy) _mm512_storeu_si512(to, bytes);
    return bytes;
}

/* A message of 1 to 64 bytes as one block that is not folded yet. With `room` for 64 bytes at `to` so many are written,
 * whatever the length: that is quicker than to mask what is stored. */
VPCLMUL_INLINE __m512i vpclmul_short(const uint8_t *data, size_t length, __m128i start, uint8_t *to, int room,
                                     int copy) {
    size_t absent = 64 - length;
    const uint8_t *block = (const uint8_t *)((uintptr_t)data - absent);
    if (copy) {
        uint64_t part = ~(uint64_t)0 >> absent;
        __m512i bytes = _mm512_maskz_loadu_epi8(part, data);
        if (__builtin_expect(room, 1)) {
            _mm512_storeu_si512(to, bytes);
        } else {
            _mm512_mask_storeu_epi8(to, part, bytes);
        }
    }
    return _mm512_xor_si512(_mm512_maskz_loadu_epi8(~(uint64_t)0 << absent, block), _mm512_zextsi128_si512(start));
}

typedef struct {
    __m512i a, b; /* the halves of a 128-byte block on which all before it is folded */
    const uint8_t *block;
    size_t after; /* blocks that follow */
} vpclmul_chains;

/* The greater part of a long message by four chains. A copy goes on ahead of the fold, to where it is aligned: stores
 * that cross cache lines would cost a quarter more. */
VPCLMUL_INLINE void vpclmul_long(vpclmul_chains *chains, const uint8_t *data, uint8_t *to, int copy) {
    __m512i a = chains->a, b = chains->b;
    const uint8_t *block = chains->block + 128;
    size_t after = chains->after - 1;
    size_t ahead = 0;
    uint8_t *at = NULL;
    if (copy) {
        at = to + (block - data);
        ahead = -(uintptr_t)at & 63;
        at += ahead;
        vpclmul_copy64(to + 128, data + 128);
    }
    __m512i by256 = vpclmul_constant(&k07_tables.by256), by128 = vpclmul_constant(&k07_tables.by128);
    __m512i c = _mm512_loadu_si512(block), d = _mm512_loadu_si512(block + 64);
    if (copy) {
        vpclmul_copy64(at, block + ahead);
        vpclmul_copy64(at + 64, block + ahead + 64);
    }
    for (; after > 2; after -= 2, block += 256) {
        if (copy) {
            at += 128;
            for (int i = 0; i < 256; i += 64) vpclmul_copy64(at + i, block + 128 + ahead + i);
            at += 128;
        }
        a = vpclmul_fold(a, by256, _mm512_loadu_si512(block + 128));
        b = vpclmul_fold(b, by256, _mm512_loadu_si512(block + 192));
        c = vpclmul_fold(c, by256, _mm512_loadu_si512(block + 256));
        d = vpclmul_fold(d, by256, _mm512_loadu_si512(block + 320));
    }
    chains->a = vpclmul_fold(a, by128, c);
    chains->b = vpclmul_fold(b, by128, d);
    chains->block = block;
    chains->after = after;
}

/* A message of at least one byte, folded to 64 bytes. `start` goes to the front of its first, filled-up block. Two
 * chains, one for each half of the blocks, so that the multiplier seldom waits.
 * With `copy`, a constant, the bytes, at least 64, go to `to` as well, and nothing outside. */
VPCLMUL_INLINE __m512i vpclmul_block(const uint8_t *data, size_t length, __m128i start, uint8_t *to, int copy) {
    size_t absent = vpclmul_absent(length);
    vpclmul_chains chains;
    chains.block = (const uint8_t *)((uintptr_t)data - absent);
    chains.after = (length - 1) / 128;
    uint64_t part = ~(uint64_t)0 << (absent & 63), both = (uint64_t)(absent / 64) - 1; /* all ones or none */
    chains.a = _mm512_maskz_loadu_epi8(part & both, chains.block);
    chains.b = _mm512_maskz_loadu_epi8(part | both, chains.block + 64);
    chains.a = _mm512_xor_si512(chains.a, _mm512_zextsi128_si512(start));
    if (copy) { /* of up to 128 bytes the last 64 may be some of the first */
        vpclmul_copy64(to, data);
        size_t second = length < 128 ? length - 64 : 64;
        vpclmul_copy64(to + second, data + second);
    }
    if (chains.after >= VPCLMUL_LONG) vpclmul_long(&chains, data, to, copy);
    __m512i by128 = vpclmul_constant(&k07_tables.by128);
    for (; chains.after > 0; chains.after--) {
        chains.block += 128;
        uint8_t *at = copy ? to + (chains.block - data) : NULL;
        chains.a = vpclmul_fold(chains.a, by128, vpclmul_next(chains.block, at, copy));
        chains.b = vpclmul_fold(chains.b, by128, vpclmul_next(chains.block + 64, copy ? at + 64 : NULL, copy));
    }
    return vpclmul_fold(chains.a, vpclmul_constant(&k07_tables.by64), chains.b);
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
