/* CRC-32 (the polynomial of zlib and IEEE 802.3), by the fastest kernel that this CPU has. */
#ifndef K07_CRC32_H
#define K07_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* As zlib's crc32(): begin with 0; the result of one part is the start of the next. */
uint32_t k07_crc32(uint32_t crc, const uint8_t *data, size_t length);

/* The name of the kernel in use. */
const char *k07_crc32_kernel(void);

/* Forces a kernel by name; NULL or "auto" takes the best. 0 ok, -1 unknown or not for this CPU. */
int k07_crc32_select(const char *name);

#endif
