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

ARMV8_TARGET static uint32_t armv8_crc32(uint32_t crc, const uint8_t *data, size_t length) {
    uint32_t state = ~crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        state = ARMV8_CRC32X(state, word);
    }
    for (; length > 0; data++, length--) state = ARMV8_CRC32B(state, *data);
    return ~state;
}

#endif
