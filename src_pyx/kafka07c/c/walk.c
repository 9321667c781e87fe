/* The walk over plain entries, with a loop of its own for each CRC kernel that pays for one. Layout in walk.h.
 *
 * The loop looks at one entry of the usual kind (magic 1, codec 0, whole) with two compares; all others go through
 * judge(), which alone knows the order in which faults are reported.
 */
#include "walk.h"

#include <string.h>

#include "crc32.h"

#if defined(__x86_64__)
#include "crc32_pclmul.h"
#include "crc32_vpclmul.h"
#endif

enum {
    HEADER_BYTES = 10, /* size, magic 1, attributes, crc */
    PLAIN = -1         /* besides the reasons to stop: a plain entry, and room for it */
};

static inline uint64_t load_be64(const uint8_t *p) {
    return (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40 | (uint64_t)p[3] << 32 |
           (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16 | (uint64_t)p[6] << 8 | p[7];
}

static inline uint32_t load_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Offsets are the caller's; they may not make signed numbers overflow */
static inline int64_t offset_at(int64_t base, int64_t pos) {
    return (int64_t)((uint64_t)base + (uint64_t)pos);
}

static inline int64_t position_of(int64_t base, int64_t offset) {
    return (int64_t)((uint64_t)offset - (uint64_t)base);
}

static inline int header_bytes(const uint8_t *entry) {
    return HEADER_BYTES - 1 + entry[4];
}

/* Whether the entry, of which HEADER_BYTES are there, is of magic 1 and codec 0 and has its payload within the `most`
 * bytes that follow them. One unsigned compare catches sizes that are negative, too small, and too large. */
static inline int is_usual(const uint8_t *entry, int64_t most) {
    uint64_t head = load_be64(entry);
    int64_t size = (int64_t)head >> 32;
    return (uint64_t)(size - (HEADER_BYTES - 4)) <= (uint64_t)most && (head >> 16 & 0xFF03) == 0x0100;
}

/* Why the walk stops at the entry at `pos`, or PLAIN */
static __attribute__((noinline)) int judge(const k07_walk *walk, int64_t pos, int64_t count) {
    const uint8_t *entry = walk->data + pos;
    int64_t left = walk->length - pos;
    if (left == 0) return K07_END;
    if (left < 4) return K07_CUT;
    int64_t size = (int32_t)load_be32(entry);
    if (size < 5 || (size == 5 && left > 4 && entry[4] == 1)) return K07_BAD_SIZE;
    if (size > left - 4) return K07_CUT;
    if (entry[4] > 1) return K07_BAD_MAGIC;
    int codec = entry[4] == 1 ? entry[5] & 3 : 0;
    if (codec == 3) return K07_BAD_CODEC;
    if (codec != 0) return K07_WRAPPER;
    return count < walk->capacity ? PLAIN : K07_FULL;
}

#if defined(__x86_64__)

typedef struct {
    __m512i block[4];     /* the messages, folded but not reduced */
    uint32_t state[4][4]; /* the third word of each: the CRC field, inverted, where vpclmul_reduce4() puts the CRC */
} vpclmul_pending;

VPCLMUL_INLINE void vpclmul_add(vpclmul_pending *pending, int slot, const uint8_t *payload, size_t length,
                                uint32_t crc) {
    if (__builtin_expect(length == 0, 0)) {
        pending->block[slot] = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)k07_tables.start[64]));
    } else {
        uint32_t start = k07_tables.start[vpclmul_absent(length)];
        pending->block[slot] =
            vpclmul_block(payload, length, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)start)));
    }
    pending->state[slot][2] = ~crc;
}

VPCLMUL_INLINE int vpclmul_first_bad(vpclmul_pending *pending, int count) {
    const __mmask16 words = 0x4444;
    __mmask16 bad = _mm512_mask_cmpneq_epi32_mask((__mmask16)(words & ((1u << 4 * count) - 1)),
                                                  vpclmul_reduce4(pending->block), _mm512_loadu_si512(pending->state));
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

/* One message at a time */
typedef struct {
    int bad;
} single_pending;

#if defined(__x86_64__)

PCLMUL_INLINE void pclmul_add(single_pending *pending, int slot, const uint8_t *payload, size_t length, uint32_t crc) {
    (void)slot;
    if (length == 0) {
        pending->bad = crc != 0;
    } else {
        uint32_t start = k07_tables.start[pclmul_absent(length)];
        pending->bad = pclmul_reduce(pclmul_block(payload, length, _mm_cvtsi32_si128((int)start))) != crc;
    }
}

#endif

static inline int single_first_bad(const single_pending *pending, int count) {
    return count && pending->bad ? 0 : count;
}

#if defined(__x86_64__)

#define WALK_LOOP walk_pclmul
#define WALK_TARGET PCLMUL_TARGET
#define WALK_BATCH 1
#define WALK_PENDING single_pending
#define WALK_ADD pclmul_add
#define WALK_FIRST_BAD single_first_bad
#include "walk_loop.h"

#endif

static inline void single_add(single_pending *pending, int slot, const uint8_t *payload, size_t length, uint32_t crc) {
    (void)slot;
    pending->bad = k07_crc32(0, payload, length) != crc;
}

#define WALK_LOOP walk_any
#define WALK_TARGET
#define WALK_BATCH 1
#define WALK_PENDING single_pending
#define WALK_ADD single_add
#define WALK_FIRST_BAD single_first_bad
#include "walk_loop.h"

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
