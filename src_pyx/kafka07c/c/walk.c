/* The walk over plain entries: walk_loop.h, with a way to check CRCs for each kernel that it pays for.
 *
 * The layout of an entry is in walk.h.
 * An entry of the usual kind (magic 1, codec 0, whole) is known by two compares; all others go through judge(), which
 * alone knows the order in which faults are reported.
 */
#include "walk.h"

#include "crc32.h"

#if defined(__x86_64__)
#include "crc32_pclmul.h"
#include "crc32_vpclmul.h"
#endif

enum {
    HEADER_BYTES = 10, /* size, magic 1, attributes, crc */
    PLAIN = -1         /* besides the reasons to stop: a plain entry, and room for it */
};

static inline uint32_t load_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* What the loop takes from an entry: read once, so that bytes changed by others meanwhile cannot lead it astray */
typedef struct {
    int64_t size; /* the size field: bytes that follow it */
    int header;   /* bytes before the payload, the size field among them */
} shape;

/* Whether the entry, `left` bytes before the end, is whole, of magic 1 and codec 0. One unsigned compare catches sizes
 * that are negative, too small, and too large. */
static inline int is_usual(const uint8_t *entry, int64_t left, shape *found) {
    if (left < HEADER_BYTES) return 0;
    found->size = (int32_t)load_be32(entry);
    found->header = HEADER_BYTES;
    unsigned magic_and_codec = (unsigned)entry[4] << 8 | (entry[5] & 3);
    return (uint64_t)(found->size - (HEADER_BYTES - 4)) <= (uint64_t)(left - HEADER_BYTES) && magic_and_codec == 0x0100;
}

/* Why the walk stops at the entry, `left` bytes before the end, or PLAIN */
static inline int judge(const uint8_t *entry, int64_t left, int64_t room, shape *found) {
    if (left == 0) return K07_END;
    if (left < 4) return K07_CUT;
    int64_t size = (int32_t)load_be32(entry);
    int magic = left > 4 ? entry[4] : 0;
    if (size < 5 || (size == 5 && magic == 1)) return K07_BAD_SIZE;
    if (size > left - 4) return K07_CUT;
    if (magic > 1) return K07_BAD_MAGIC;
    int codec = magic == 1 ? entry[5] & 3 : 0;
    if (codec == 3) return K07_BAD_CODEC;
    if (codec != 0) return K07_WRAPPER;
    if (room <= 0) return K07_FULL;
    *found = (shape){size, HEADER_BYTES - 1 + magic};
    return PLAIN;
}

/* One message at a time: the kernels that have nothing to gain from several, by the function in crc32.h */
typedef struct {
    int bad;
} single_pending;

static inline int single_first_bad(const single_pending *pending, int count) {
    return count != 0 && pending->bad ? 0 : count;
}

static inline void single_add(single_pending *pending, int slot, const uint8_t *payload, size_t length,
                              const uint8_t *crc) {
    (void)slot;
    pending->bad = k07_crc32(0, payload, length) != load_be32(crc);
}

#define WALK_LOOP walk_any
#define WALK_TARGET
#define WALK_BATCH 1
#define WALK_PENDING single_pending
#define WALK_ADD single_add
#define WALK_FIRST_BAD single_first_bad
#include "walk_loop.h"

#if defined(__x86_64__)

/* The same, without a call per message */
PCLMUL_INLINE void pclmul_add(single_pending *pending, int slot, const uint8_t *payload, size_t length,
                              const uint8_t *crc) {
    (void)slot;
    if (length == 0) {
        pending->bad = load_be32(crc) != 0;
    } else {
        __m128i start = _mm_cvtsi32_si128((int)k07_tables.start[pclmul_absent(length)]);
        pending->bad = pclmul_reduce(pclmul_block(payload, length, start, NULL, 0)) != load_be32(crc);
    }
}

#define WALK_LOOP walk_pclmul
#define WALK_TARGET PCLMUL_TARGET
#define WALK_BATCH 1
#define WALK_PENDING single_pending
#define WALK_ADD pclmul_add
#define WALK_FIRST_BAD single_first_bad
#include "walk_loop.h"

/* Four messages. Of each its W, in parts, with the CRC field added where the CRC will come out: all ones, if equal */
typedef struct {
    __m512i parts[4];
} vpclmul_pending;

VPCLMUL_INLINE void vpclmul_add(vpclmul_pending *pending, int slot, const uint8_t *payload, size_t length,
                                const uint8_t *crc) {
    const __m128i to_third_word = _mm_set_epi32(-1, 0x00010203, -1, -1); /* and from big-endian */
    __m128i field = _mm_shuffle_epi8(vpclmul_load4(crc), to_third_word);
    if (__builtin_expect(length == 0, 0)) {
        pending->parts[slot] = _mm512_zextsi128_si512(_mm_xor_si128(field, _mm_set_epi32(0, -1, 0, 0)));
    } else {
        __m128i start = vpclmul_load4(&k07_tables.start[vpclmul_absent(length)]);
        __m512i block = vpclmul_block(payload, length, start, NULL, 0);
        pending->parts[slot] = vpclmul_parts(block, _mm512_zextsi128_si512(field));
    }
}

VPCLMUL_INLINE int vpclmul_first_bad(const vpclmul_pending *pending, int count) {
    const __m512i *parts = pending->parts;
    __m512i sums = vpclmul_reduce4(parts[0], parts[1], parts[2], parts[3]);
    __mmask16 third_words = (__mmask16)(0x4444 & ((1u << 4 * count) - 1));
    __mmask16 bad = _mm512_mask_cmpneq_epi32_mask(third_words, sums, _mm512_set1_epi32(-1));
    return bad ? __builtin_ctz(bad) / 4 : count;
}

#define WALK_LOOP walk_vpclmul
#define WALK_TARGET VPCLMUL_TARGET
#define WALK_BATCH 4
#define WALK_PENDING vpclmul_pending
#define WALK_ADD vpclmul_add
#define WALK_FIRST_BAD vpclmul_first_bad
#include "walk_loop.h"

#endif

int k07_walk_plain(k07_walk *walk) {
    switch (k07_crc32_kernel_id()) {
#if defined(__x86_64__)
    case K07_VPCLMULQDQ512:
        return walk_vpclmul(walk);
    case K07_PCLMULQDQ:
        return walk_pclmul(walk);
#endif
    default:
        return walk_any(walk);
    }
}
