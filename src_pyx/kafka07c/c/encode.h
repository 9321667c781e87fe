/* Plain entries out of payloads: header, exact CRC and copy in one pass over the bytes. The layout is in walk.h. */
#ifndef K07_ENCODE_H
#define K07_ENCODE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *data;
    int64_t length; /* 0 to INT32_MAX - 6 */
} k07_payload;

/* The bytes of an entry without its payload: magic is 0 or 1 */
#define K07_HEADER_BYTES(magic) (9 + (magic))

/* Writes an entry for each payload at `out`, one after the other, and returns where the next goes. `end` is where the
 * room ends, at or behind the last of them: bytes up to 64 behind a payload's start may be written to, but none from `end` on.
 * Magic 0 has no attributes, and leaves them out. Nobody may write to the payloads meanwhile. */
uint8_t *k07_encode(uint8_t *out, uint8_t *end, const k07_payload *payloads, size_t count, int magic, int attributes);

#endif
