/* Plain entries out of payloads: encode_loop.h, with a way to copy and check for each kernel that it pays for. */
#include "encode.h"

#include <string.h>

#include "crc32.h"

#if defined(__x86_64__)
#include "crc32_pclmul.h"
#include "crc32_vpclmul.h"
#endif

static inline void store_be32(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)(value >> 24);
    p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8);
    p[3] = (uint8_t)value;
}

/* All of an entry's header but its CRC */
static inline void put_header(uint8_t *out, uint32_t size, int magic, int attributes) {
    store_be32(out, size);
    out[4] = (uint8_t)magic;
    if (magic != 0) out[5] = (uint8_t)attributes;
}

/* One message at a time: the kernels that have nothing to gain from several, by the function in crc32.h */
typedef struct {
    uint32_t crc;
} single_crc;

static inline void single_add(single_crc *pending, int slot, uint8_t *to, const uint8_t *end, const uint8_t *data,
                              size_t length) {
    (void)slot, (void)end;
    pending->crc = k07_crc32_copy(0, data, length, to);
}

static inline void single_finish(const single_crc *pending, uint8_t *const *fields, int count) {
    (void)count;
    store_be32(fields[0], pending->crc);
}

#define ENCODE_LOOP encode_any
#define ENCODE_TARGET
#define ENCODE_BATCH 1
#define ENCODE_PENDING single_crc
#define ENCODE_ADD single_add
#define ENCODE_FINISH single_finish
#include "encode_loop.h"

#if defined(__x86_64__)

/* The same, without a call per message */
PCLMUL_INLINE void pclmul_add(single_crc *pending, int slot, uint8_t *to, const uint8_t *end, const uint8_t *data,
                              size_t length) {
    (void)slot, (void)end;
    if (length == 0) {
        pending->crc = 0;
    } else {
        __m128i start = _mm_cvtsi32_si128((int)k07_tables.start[pclmul_absent(length)]);
        pending->crc = pclmul_reduce(pclmul_block(data, length, start, to, 1));
    }
}

#define ENCODE_LOOP encode_pclmul
#define ENCODE_TARGET PCLMUL_TARGET
#define ENCODE_BATCH 1
#define ENCODE_PENDING single_crc
#define ENCODE_ADD pclmul_add
#define ENCODE_FINISH single_finish
#include "encode_loop.h"

/* Four messages. Of each its W, in parts */
typedef struct {
    __m512i parts[4];
} vpclmul_parts4;

VPCLMUL_INLINE void vpclmul_add(vpclmul_parts4 *pending, int slot, uint8_t *to, const uint8_t *end,
                                const uint8_t *data, size_t length) {
    __m512i block;
    if (__builtin_expect(length == 0, 0)) {
        pending->parts[slot] = _mm512_zextsi128_si512(_mm_set_epi32(0, -1, 0, 0)); /* comes out as CRC 0 */
        return;
    }
    if (length <= 64) {
        __m128i start = vpclmul_load4(&k07_tables.start[64 - length]);
        block = vpclmul_short(data, length, start, to, end - to >= 64, 1);
    } else {
        block = vpclmul_block(data, length, vpclmul_load4(&k07_tables.start[vpclmul_absent(length)]), to, 1);
    }
    pending->parts[slot] = vpclmul_parts(block, _mm512_setzero_si512());
}

VPCLMUL_INLINE void vpclmul_finish(const vpclmul_parts4 *pending, uint8_t *const *fields, int count) {
    const __m512i *parts = pending->parts;
    __m512i sums = vpclmul_reduce4(parts[0], parts[1], parts[2], parts[3]);
    const __m512i first_words = _mm512_set4_epi32(-1, -1, -1, 0x08090A0B); /* the third ones, as big-endian */
    sums = _mm512_shuffle_epi8(_mm512_xor_si512(sums, _mm512_set1_epi32(-1)), first_words);
    uint32_t words[16];
    _mm512_storeu_si512(words, sums);
#pragma GCC unroll 4
    for (int slot = 0; slot < count; slot++) memcpy(fields[slot], &words[4 * slot], 4);
}

#define ENCODE_LOOP encode_vpclmul
#define ENCODE_TARGET VPCLMUL_TARGET
#define ENCODE_BATCH 4
#define ENCODE_PENDING vpclmul_parts4
#define ENCODE_ADD vpclmul_add
#define ENCODE_FINISH vpclmul_finish
#include "encode_loop.h"

#endif

uint8_t *k07_encode(uint8_t *out, uint8_t *end, const k07_payload *payloads, size_t count, int magic, int attributes) {
    switch (k07_crc32_kernel_id()) {
#if defined(__x86_64__)
    case K07_VPCLMULQDQ512:
        return encode_vpclmul(out, end, payloads, count, magic, attributes);
    case K07_PCLMULQDQ:
        return encode_pclmul(out, end, payloads, count, magic, attributes);
#endif
    default:
        return encode_any(out, end, payloads, count, magic, attributes);
    }
}
