/* The loop of k07_encode(), included by encode.c once for each way to copy and check. No include guard.
 *
 * Before, define:
 *     ENCODE_LOOP       the function's name
 *     ENCODE_TARGET     its target attribute
 *     ENCODE_BATCH      messages whose CRCs are finished together
 *     ENCODE_PENDING    type of what is kept of them until then
 *     ENCODE_ADD        (pending, slot, to, end, data, length): copies a payload of any length
 *     ENCODE_FINISH     (pending, fields, count): stores the CRCs, big-endian, to fields[0] to fields[count - 1]
 */
ENCODE_TARGET static uint8_t *ENCODE_LOOP(uint8_t *out, uint8_t *end, const k07_payload *payload, size_t count,
                                          int magic, int attributes) {
    uint8_t *fields[ENCODE_BATCH];
    ENCODE_PENDING pending = {0};
    while (count > 0) {
        int slots = count < ENCODE_BATCH ? (int)count : ENCODE_BATCH;
        for (int slot = 0; slot < slots; slot++, payload++) {
            size_t length = (size_t)payload->length;
            uint8_t *to = out + K07_HEADER_BYTES(magic);
            put_header(out, (uint32_t)(length + 5 + (unsigned)magic), magic, attributes);
            fields[slot] = to - 4;
            out = to + length;
            ENCODE_ADD(&pending, slot, to, end, payload->data, length);
        }
        ENCODE_FINISH(&pending, fields, slots);
        count -= (size_t)slots;
    }
    return out;
}

#undef ENCODE_LOOP
#undef ENCODE_TARGET
#undef ENCODE_BATCH
#undef ENCODE_PENDING
#undef ENCODE_ADD
#undef ENCODE_FINISH
