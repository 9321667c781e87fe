/* CRC-32 by the ARMv8 instructions, which have the same polynomial. */
#ifndef K07_CRC32_ARMV8_H
#define K07_CRC32_ARMV8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#ifdef __clang__
#define ARMV8_TARGET __attribute__((target("crc")))
#define ARMV8_CRC32X __builtin_arm_crc32d
#define ARMV8_CRC32B __builtin_arm_crc32b
#else
#define ARMV8_TARGET __attribute__((target("+crc")))
#define ARMV8_CRC32X __builtin_aarch64_crc32x
#define ARMV8_CRC32B __builtin_aarch64_crc32b
#endif

static inline int armv8_available(void) {
#if defined(__ARM_FEATURE_CRC32) /* the whole build asks for it; so it is on every Apple CPU */
    return 1;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return 0;
#endif
}

/* With `copy`, a constant, the bytes go to `to` as well, as they are loaded. */
static inline __attribute__((always_inline)) ARMV8_TARGET uint32_t armv8_state(uint32_t state, const uint8_t *data,
                                                                               size_t length, uint8_t *to, int copy) {
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        state = ARMV8_CRC32X(state, word);
        if (copy) {
            memcpy(to, &word, 8);
            to += 8;
        }
    }
    for (; length > 0; data++, length--) {
        uint8_t byte = *data;
        state = ARMV8_CRC32B(state, byte);
        if (copy) *to++ = byte;
    }
    return state;
}

ARMV8_TARGET static uint32_t armv8_crc32(uint32_t crc, const uint8_t *data, size_t length) {
    return ~armv8_state(~crc, data, length, NULL, 0);
}

ARMV8_TARGET static uint32_t armv8_crc32_copy(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to) {
    return ~armv8_state(~crc, data, length, to, 1);
}

#endif
