/* CRC-32 (the polynomial of zlib, gzip and IEEE 802.3), by the fastest kernel that this CPU has. */
#ifndef K07_CRC32_H
#define K07_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* As zlib's crc32(): begin with 0; the result of one part is the start of the next. */
uint32_t k07_crc32(uint32_t crc, const uint8_t *data, size_t length);

/* The same, and the bytes go to `to` as well, in one pass. The two must not overlap, and nobody may write to `data`
 * meanwhile: some of it is loaded twice, and the CRC would not be that of the copy. */
uint32_t k07_crc32_copy(uint32_t crc, const uint8_t *data, size_t length, uint8_t *to);

/* The name of the kernel in use: "vpclmulqdq512", "pclmulqdq", "armv8" or "slice16"; at first use the best. */
const char *k07_crc32_kernel(void);

/* Forces a kernel by name; NULL or "auto" takes the best. 0 ok, -1 unknown or not for this CPU. */
int k07_crc32_select(const char *name);

/* The names of the kernels that this CPU has, the best first: the i-th, or NULL when there are no more. */
const char *k07_crc32_available(int i);

/* The names of the kernels that were compiled in, whether this CPU has them or not, in the same way. */
const char *k07_crc32_compiled(int i);

/* For code that brings a loop of its own for a kernel (walk.c): which one is in use. */
typedef enum { K07_VPCLMULQDQ512, K07_PCLMULQDQ, K07_ARMV8, K07_SLICE16 } k07_kernel_id;
k07_kernel_id k07_crc32_kernel_id(void);

#endif
