#include "walk.h"
#include "crc32.h"

static uint32_t load32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int k07_walk_plain(k07_walk *w) {
    int status;
    for (;;) {
        const uint8_t *entry = w->data + w->pos;
        int64_t left = w->length - w->pos;
        if (left == 0) { status = K07_END; break; }
        if (left < 4) { status = K07_CUT; break; }
        int32_t size = (int32_t)load32(entry);
        if (size < 5) { status = K07_BAD_SIZE; break; }
        if (size == 5 && left > 4 && entry[4] == 1) { status = K07_BAD_SIZE; break; }
        if (size > left - 4) { status = K07_CUT; break; }
        if (entry[4] > 1) { status = K07_BAD_MAGIC; break; }
        int header = 9 + entry[4];
        if (entry[4] == 1 && (entry[5] & 3)) { status = (entry[5] & 3) == 3 ? K07_BAD_CODEC : K07_WRAPPER; break; }
        if (w->count == w->capacity) { status = K07_FULL; break; }
        int32_t length = size + 4 - header;
        if (k07_crc32(0, entry + header, (size_t)length) != load32(entry + header - 4)) { status = K07_BAD_CRC; break; }
        w->offsets[w->count] = w->base + w->pos;
        w->lengths[w->count++] = length;
        w->pos += 4 + (int64_t)size;
    }
    w->offsets[w->count] = w->base + w->pos;
    return status;
}
