/* The tables of crc32_tables.h, from the polynomial of RFC 1952 (section 8) and nothing else. */
#include "crc32_tables.h"

#include <pthread.h>

#define POLYNOMIAL 0xEDB88320u
#define X_TO_31 1u

k07_crc32_tables k07_tables;

static uint32_t times_x(uint32_t a) {
    return a >> 1 ^ (a & 1 ? POLYNOMIAL : 0);
}

static uint32_t divided_by_x(uint32_t a) { /* P has both x^32 and 1, so x has an inverse */
    return a >> 31 ? (a ^ POLYNOMIAL) << 1 | 1 : a << 1;
}

static uint32_t power_of_x(int n) { /* x^n mod P, n from -1 up */
    uint32_t a = X_TO_31;
    for (; n < 31; n++) a = divided_by_x(a);
    for (; n > 31; n--) a = times_x(a);
    return a;
}

static k07_pair forward(int bytes) {
    int bits = 8 * bytes;
    return (k07_pair){(uint64_t)power_of_x(bits + 64 - 1) << 32, (uint64_t)power_of_x(bits - 1) << 32};
}

static k07_pair to_w(int bytes) {
    int bits = 8 * bytes + 32;
    return (k07_pair){power_of_x(bits + 64 - 1), power_of_x(bits - 1)};
}

static uint64_t mu(void) {
    uint64_t quotient = 0;
    uint32_t a = X_TO_31;
    for (int j = 0; j < 64; j++, a = times_x(a)) quotient |= (uint64_t)(a & 1) << j; /* the carries of long division */
    return quotient;
}

static void fill_slices(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t a = byte;
        for (int bit = 0; bit < 8; bit++) a = times_x(a);
        k07_tables.slice[0][byte] = a;
    }
    for (int k = 1; k < 16; k++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t a = k07_tables.slice[k - 1][byte];
            k07_tables.slice[k][byte] = a >> 8 ^ k07_tables.slice[0][a & 0xFF];
        }
    }
}

static void fill_states(void) {
    uint32_t start = 0xFFFFFFFFu, back = X_TO_31;
    for (int k = 0; k < 128; k++) {
        k07_tables.start[k] = start;
        k07_tables.back[k] = back;
        for (int bit = 0; bit < 8; bit++) {
            start = divided_by_x(start);
            back = divided_by_x(back);
        }
    }
}

static void fill(void) {
    fill_slices();
    fill_states();
    k07_tables.by16 = forward(16);
    k07_tables.by32 = forward(32);
    k07_tables.by64 = forward(64);
    k07_tables.by128 = forward(128);
    k07_tables.by256 = forward(256);
    for (int lane = 0; lane < 4; lane++) k07_tables.last[lane] = to_w(48 - 16 * lane);
    k07_tables.barrett = (k07_pair){mu(), (uint64_t)POLYNOMIAL << 1 | 1};
}

void k07_crc32_derive(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
}
