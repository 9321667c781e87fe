/* The loop of k07_walk_plain(), included by walk.c once for each way to check CRCs. No include guard.
 *
 * Before, define:
 *     WALK_LOOP         the function's name
 *     WALK_TARGET       its target attribute
 *     WALK_BATCH        messages that are checked together
 *     WALK_PENDING      type of what is kept of them until then
 *     WALK_ADD          (pending, slot, payload, length, crc): takes a message of any length; crc points at the field
 *     WALK_FIRST_BAD    (pending, count) -> slot of the first whose CRC is wrong, or count
 *
 * A message is in the columns while it is pending, but `count` leaves it out.
 */
WALK_TARGET static int WALK_LOOP(k07_walk *walk) {
    const uint8_t *const end = walk->data + walk->length;
    const uint8_t *entry = walk->data + walk->pos;
    const uint64_t origin = (uint64_t)walk->base - (uint64_t)(uintptr_t)walk->data;
    int64_t *offset = walk->offsets + walk->count, *const last = walk->offsets + walk->capacity;
    int32_t *length = walk->lengths + walk->count;
    WALK_PENDING pending = {0};
    int stop, slot, good;
    do {
        const uint8_t *const usual_end = last - offset >= WALK_BATCH ? end : entry;
#pragma GCC unroll 4
        for (slot = 0, stop = PLAIN; slot < WALK_BATCH; slot++) {
            shape found;
            if (__builtin_expect(!is_usual(entry, usual_end - entry, &found), 0)) {
                stop = judge(entry, end - entry, last - (offset + slot), &found);
                if (stop != PLAIN) break;
            }
            const uint8_t *payload = entry + found.header;
            offset[slot] = (int64_t)(origin + (uintptr_t)entry);
            entry += 4 + found.size;
            length[slot] = (int32_t)(entry - payload);
            WALK_ADD(&pending, slot, payload, (size_t)(entry - payload), payload - 4);
        }
        good = WALK_FIRST_BAD(&pending, slot);
        offset += good;
        length += good;
    } while (good == WALK_BATCH);
    if (good < slot) {
        stop = K07_BAD_CRC;
        entry = (const uint8_t *)(uintptr_t)((uint64_t)*offset - origin);
    }
    *offset = (int64_t)(origin + (uintptr_t)entry);
    walk->pos = entry - walk->data;
    walk->count = offset - walk->offsets;
    return stop;
}

#undef WALK_LOOP
#undef WALK_TARGET
#undef WALK_BATCH
#undef WALK_PENDING
#undef WALK_ADD
#undef WALK_FIRST_BAD
