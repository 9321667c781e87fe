/* The kernels of CRC-32, the portable one, and the choice among them at run time.
 *
 * Source: RFC 1952 section 8 (the polynomial, all ones before and inverted after); how each kernel works stands in its
 * header, the mathematics in crc32_tables.h.
 */
#include "crc32.h"

#include <stdatomic.h>
#include <string.h>

#include "crc32_tables.h"

#if defined(__x86_64__)
#include "crc32_pclmul.h"
#include "crc32_vpclmul.h"
#elif defined(__aarch64__)
#include "crc32_armv8.h"
#endif

static uint32_t load_le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* What a word comes to when `after` more bytes have followed it */
static inline uint32_t slice_word(uint32_t word, int after) {
    return k07_tables.slice[after + 3][word & 0xFF] ^ k07_tables.slice[after + 2][word >> 8 & 0xFF] ^
           k07_tables.slice[after + 1][word >> 16 & 0xFF] ^ k07_tables.slice[after][word >> 24];
}

/* With `copy`, a constant, the bytes go to `to` as well. */
static inline __attribute__((always_inline)) uint32_t slice16_state(uint32_t state, const uint8_t *data, size_t length,
                                                                    uint8_t *to, int copy) {
    for (; length >= 16; data += 16, length -= 16) {
        uint8_t block[16];
        memcpy(block, data, 16);
        if (copy) {
            memcpy(to, block, 16);
            to += 16;
        }
        state = slice_word(load_le32(block) ^ state, 12) ^ slice_word(load_le32(block + 4), 8) ^
                slice_word(load_le32(block + 8), 4) ^ slice_word(load_le32(block + 12), 0);
    }
    for (; length > 0; data++, length--) {
        uint8_t byte = *data;
        if (copy) *to++ = byte;
        state = state >> 8 ^ k07_tables.slice[0][(state ^ byte) & 0xFF];
    }
    return state;
}

static uint32_t slice16_crc32(uint32_t crc, const uint8_t *data, size_t length) {
    return ~slice16_state(~crc, data, length, NULL, 0);
}

static uint32_t slice16_crc32_copy(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to) {
    return ~slice16_state(~crc, data, length, to, 1);
}

#if defined(__x86_64__)

/* state * back: what a block whose first bytes are absent begins with */
PCLMUL_INLINE __m128i start_of(uint32_t crc, size_t absent) {
    __m128i state = _mm_cvtsi32_si128((int)~crc), back = _mm_cvtsi32_si128((int)k07_tables.back[absent]);
    return _mm_clmulepi64_si128(state, back, 0x00);
}

VPCLMUL_INLINE uint32_t vpclmul_any(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to, int copy) {
    if (length == 0) return crc;
    __m512i block;
    if (copy && length <= 64) {
        block = vpclmul_short(data, length, start_of(crc, 64 - length), to, 0, copy);
    } else {
        block = vpclmul_block(data, length, start_of(crc, vpclmul_absent(length)), to, copy);
    }
    __m512i w4 = vpclmul_parts(block, _mm512_setzero_si512());
    __m256i w2 = _mm256_xor_si256(_mm512_castsi512_si256(w4), _mm512_extracti64x4_epi64(w4, 1));
    return pclmul_barrett(_mm_xor_si128(_mm256_castsi256_si128(w2), _mm256_extracti128_si256(w2, 1)));
}

VPCLMUL_TARGET static uint32_t vpclmul_crc32(uint32_t crc, const uint8_t *data, size_t length) {
    return vpclmul_any(crc, data, length, NULL, 0);
}

VPCLMUL_TARGET static uint32_t vpclmul_crc32_copy(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to) {
    return vpclmul_any(crc, data, length, to, 1);
}

PCLMUL_TARGET static uint32_t pclmul_crc32(uint32_t crc, const uint8_t *data, size_t length) {
    if (length == 0) return crc;
    return pclmul_reduce(pclmul_block(data, length, start_of(crc, pclmul_absent(length)), NULL, 0));
}

PCLMUL_TARGET static uint32_t pclmul_crc32_copy(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to) {
    if (length == 0) return crc;
    return pclmul_reduce(pclmul_block(data, length, start_of(crc, pclmul_absent(length)), to, 1));
}

#endif

static int always(void) {
    return 1;
}

typedef struct {
    k07_kernel_id id;
    const char *name;
    int (*available)(void);
    uint32_t (*crc32)(uint32_t crc, const uint8_t *data, size_t length);
    uint32_t (*crc32_copy)(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to);
} kernel;

static const kernel kernels[] = { /* the best first */
#if defined(__x86_64__)
    {K07_VPCLMULQDQ512, "vpclmulqdq512", vpclmul_available, vpclmul_crc32, vpclmul_crc32_copy},
    {K07_PCLMULQDQ, "pclmulqdq", pclmul_available, pclmul_crc32, pclmul_crc32_copy},
#elif defined(__aarch64__)
    {K07_ARMV8, "armv8", armv8_available, armv8_crc32, armv8_crc32_copy},
#endif
    {K07_SLICE16, "slice16", always, slice16_crc32, slice16_crc32_copy},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static const kernel *_Atomic chosen;

static const kernel *find(const char *name) { /* NULL or "auto": the best */
    int any = name == NULL || strcmp(name, "auto") == 0;
    for (int i = 0; i < KERNELS; i++) {
        if (kernels[i].available() && (any || strcmp(name, kernels[i].name) == 0)) return &kernels[i];
    }
    return NULL;
}

static int choose(const kernel *choice) {
    if (choice == NULL) return -1;
    k07_crc32_derive();
    atomic_store_explicit(&chosen, choice, memory_order_release);
    return 0;
}

static const kernel *in_use(void) {
    const kernel *k = atomic_load_explicit(&chosen, memory_order_acquire);
    if (__builtin_expect(k == NULL, 0)) {
        choose(find(NULL));
        k = atomic_load_explicit(&chosen, memory_order_acquire);
    }
    return k;
}

uint32_t k07_crc32(uint32_t crc, const uint8_t *data, size_t length) {
    return in_use()->crc32(crc, data, length);
}

uint32_t k07_crc32_copy(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to) {
    return in_use()->crc32_copy(crc, data, length, to);
}

const char *k07_crc32_kernel(void) {
    return in_use()->name;
}

k07_kernel_id k07_crc32_kernel_id(void) {
    return in_use()->id;
}

int k07_crc32_select(const char *name) {
    return choose(find(name));
}

const char *k07_crc32_available(int i) {
    for (int k = 0; k < KERNELS; k++) {
        if (kernels[k].available() && i-- == 0) return kernels[k].name;
    }
    return NULL;
}

const char *k07_crc32_compiled(int i) {
    return i >= 0 && i < KERNELS ? kernels[i].name : NULL;
}
