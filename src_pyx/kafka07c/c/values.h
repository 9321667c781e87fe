/* Payloads of plain message sets to Arrow values: gathered into one buffer, or as 16-byte views over where they lie.
 *
 * Layouts: "Arrow columnar format", variable-size binary and variable-size binary view.
 */
#ifndef K07_VALUES_H
#define K07_VALUES_H

#include <stdint.h>
#include <string.h>

enum {
    K07_INLINE_BYTES = 12,    /* a view holds so many bytes itself */
    K07_VIEW_BYTES = 16,
    K07_WINDOW_BYTES = 1 << 30, /* views reach 2 GiB into a buffer: larger memory is shown as overlapping buffers */
    K07_STEP = 32,            /* short payloads are copied in steps of this, the last one beyond the end */
    K07_SHORT = 512
};

/* The columns of a plain set. All that is read lies in data[0] to data[length - 1], as long as the columns say so,
 * whatever has become of the bytes. */
typedef struct {
    const uint8_t *data;
    int64_t length;
    int64_t base;           /* offset of data[0] */
    const int64_t *offsets; /* count + 1 */
    const int32_t *lengths;
    int64_t count;
} k07_plain;

static inline const uint8_t *k07_plain_payload(const k07_plain *set, int64_t i) {
    return set->data + (set->offsets[i + 1] - set->base - set->lengths[i]);
}

/* `offsets` gets count + 1 elements; `out` has room for all the values and K07_STEP bytes more, which may be written. */
static void k07_gather(const k07_plain *set, int32_t *offsets, uint8_t *out) {
    const uint8_t *const end = set->data + set->length;
    int32_t filled = 0;
    for (int64_t i = 0; i < set->count; i++) {
        const uint8_t *payload = k07_plain_payload(set, i);
        int32_t length = set->lengths[i];
        offsets[i] = filled;
        if (length <= K07_SHORT && end - payload >= K07_SHORT + K07_STEP) {
            for (int32_t k = 0; k < length; k += K07_STEP) memcpy(out + filled + k, payload + k, K07_STEP);
        } else {
            memcpy(out + filled, payload, (size_t)length);
        }
        filled += length;
    }
    offsets[set->count] = filled;
}

/* One view, of a payload that begins `at` bytes into the memory whose first buffer has the number `first` */
static inline void k07_put_view(uint8_t *slot, const uint8_t *payload, int32_t length, int64_t first, int64_t at) {
    memcpy(slot, &length, 4);
    if (length <= K07_INLINE_BYTES) {
        memset(slot + 4, 0, K07_INLINE_BYTES);
        memcpy(slot + 4, payload, (size_t)length);
    } else {
        int32_t place[2] = {(int32_t)(first + at / K07_WINDOW_BYTES), (int32_t)(at % K07_WINDOW_BYTES)};
        memcpy(slot + 4, payload, 4);
        memcpy(slot + 8, &place[0], 4);
        memcpy(slot + 12, &place[1], 4);
    }
}

/* The views of all the payloads; the memory is buffer 0, and as many more as it has windows. */
static void k07_put_views(const k07_plain *set, uint8_t *slot) {
    const uint8_t *const end = set->data + set->length;
    for (int64_t i = 0; i < set->count; i++, slot += K07_VIEW_BYTES) {
        const uint8_t *payload = k07_plain_payload(set, i);
        int32_t length = set->lengths[i];
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        if (length <= K07_INLINE_BYTES && end - payload >= K07_INLINE_BYTES) { /* loads of one size, masked */
            uint64_t first;
            uint32_t rest;
            memcpy(&first, payload, 8);
            memcpy(&rest, payload + 8, 4);
            first &= length >= 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * length) - 1;
            rest &= length <= 8 ? 0 : (uint32_t)(((uint64_t)1 << 8 * (length - 8)) - 1);
            memcpy(slot, &length, 4);
            memcpy(slot + 4, &first, 8);
            memcpy(slot + 12, &rest, 4);
            continue;
        }
#endif
        k07_put_view(slot, payload, length, 0, payload - set->data);
    }
    (void)end;
}

#endif
