/* One pass over the plain entries of a message set: header, exact CRC, columns.
 *
 * An entry, big-endian (kafka.message.Message of 0.7.2):
 *
 *     int32 size | int8 magic | [int8 attributes, if magic is 1] | uint32 crc of the payload | payload
 *
 * size counts what follows it; attributes & 3 is the codec, 0 for none; the other bits are ignored.
 */
#ifndef K07_WALK_H
#define K07_WALK_H

#include <stdint.h>

enum {
    K07_END = 0,   /* pos == length */
    K07_CUT,       /* the last entry is not whole; also fewer than 4 bytes of a size */
    K07_FULL,      /* no room left in the columns for the plain entry at pos, its CRC not yet checked */
    K07_WRAPPER,   /* a whole compressed entry at pos, its CRC not yet checked */
    K07_BAD_SIZE,  /* a size below the header's, as soon as it can be seen */
    K07_BAD_MAGIC, /* neither 0 nor 1 */
    K07_BAD_CODEC, /* attributes & 3 is 3 */
    K07_BAD_CRC
};

typedef struct {
    const uint8_t *data;
    int64_t length;
    int64_t pos;      /* in: where to begin; out: the start of the entry that stopped the walk, or length */
    int64_t base;     /* offset of data[0] in the log */
    int64_t *offsets; /* capacity + 1 elements; offsets[count] = base + pos, so next offsets are offsets + 1 */
    int32_t *lengths; /* capacity elements: payload bytes */
    int64_t count;    /* in and out: entries in the columns, each of them whole and good */
    int64_t capacity;
} k07_walk;

/* Walks from pos to the first entry that it cannot put into the columns, and returns why (the enum above). Never reads
 * outside data[0] to data[length - 1], whatever the bytes; may write past count, but not past capacity. */
int k07_walk_plain(k07_walk *walk);

#endif
