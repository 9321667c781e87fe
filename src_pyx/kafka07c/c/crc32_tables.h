/* What the CRC-32 kernels calculate with: tables and constants, all derived at run time from the polynomial alone.
 *
 * The method is folding with a Barrett reduction at the end (V. Gopal and others, "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction", Intel 2009); the constants are our own, as follows.
 *
 * A polynomial over GF(2) is written "reflected": of an n-bit number, bit j is the coefficient of x^(n-1-j). So a
 * little-endian load of message bytes gives the message as a polynomial, and P, x^32 left out, is 0xEDB88320.
 *
 * A carry-less product of two reflected 64-bit numbers has x^126 in bit 0: read as a reflected 128-bit number it is
 * A * B * x. That is why every exponent below is odd by one. To move A forward by m bits, that is to A * x^m modulo P:
 *
 *     constant x^(m-1) mod P in the upper half of the 64 bits: the product is a reflected 128-bit number (degree < 96);
 *     constant x^(m-1) mod P in the lower half: the same product, 32 bits lower: x^95 in bit 0, x^0 in bit 95.
 *
 * The first form folds blocks on blocks, the second makes the 96 bits that the reduction starts from.
 *
 * The reduction of W = A * x^32 + B, A of 64 bits, B of 32, to W mod P is Barrett's: with mu = floor(x^96 / P),
 * the quotient is q = floor(A * mu / x^64), exactly, and the remainder is B + the low 32 bits of q * P. mu has 65
 * bits; its last one cannot reach q, and without it mu is a 64-bit number whose product with A has x^127 in bit 0, so q
 * is the low half of it. P with x^32 in bit 0 is a 33-bit number; the product with q has x^95 in bit 0, as W has.
 */
#ifndef K07_CRC32_TABLES_H
#define K07_CRC32_TABLES_H

#include <stdint.h>

/* For the two 64-bit halves of a 128-bit number: low is the earlier half of the message. */
typedef struct {
    uint64_t low, high;
} k07_pair;

typedef struct {
    uint32_t slice[16][256]; /* slice[k][b]: what byte b comes to when k more bytes have followed it */

    /* A block whose first k bytes are absent is a whole one that begins with k zeros. Then it takes another state
     * before them: start[k] for a message's beginning, state * back[k] for any state. */
    uint32_t start[128]; /* the state that k zero bytes turn into 0xFFFFFFFF */
    uint32_t back[128];  /* x^(31-8k): state * back[k] is 64 bits to be added to the first 64 of the block */

    k07_pair by16, by32, by64, by128, by256; /* a 128-bit number forward by so many bytes */
    k07_pair last[4]; /* the 128-bit numbers of a 64-byte block to the 96 bits of W, to be added up */
    k07_pair barrett; /* mu, P */
} k07_crc32_tables;

/* Filled by k07_crc32_derive(), which must have returned before; calling it again does nothing. */
extern k07_crc32_tables k07_tables;
void k07_crc32_derive(void);

#endif
