/* The loop of k07_walk_plain(), included by walk.c once for each way to check CRCs. No include guard.
 *
 * Before, define:
 *     WALK_LOOP         the function's name
 *     WALK_TARGET       its target attribute
 *     WALK_BATCH        messages that are checked together
 *     WALK_PENDING      type of what is kept of them until then
 *     WALK_ADD          (pending, slot, payload, length, crc): takes a message, any length
 *     WALK_FIRST_BAD    (pending, count) -> slot of the first whose CRC is wrong, or count
 *
 * A message is in the columns while it is pending, but `count` leaves it out.
 */
WALK_TARGET static int WALK_LOOP(k07_walk *walk) {
    const uint8_t *const data = walk->data;
    const int64_t base = walk->base, longest = walk->length - HEADER_BYTES;
    int64_t pos = walk->pos, count = walk->count;
    int64_t *const offsets = walk->offsets;
    int32_t *const lengths = walk->lengths;
    WALK_PENDING pending = {0};
    int slot = 0, stop, good;
    for (;;) {
        const uint8_t *entry = data + pos;
        int header = HEADER_BYTES;
        if (!(pos <= longest && is_usual(entry, longest - pos) && count + slot < walk->capacity)) {
            stop = judge(walk, pos, count + slot);
            if (stop != PLAIN) break;
            header = header_bytes(entry);
        }
        int64_t size = (int64_t)load_be32(entry) + 4;
        int64_t length = size - header;
        offsets[count + slot] = offset_at(base, pos);
        lengths[count + slot] = (int32_t)length;
        WALK_ADD(&pending, slot, entry + header, (size_t)length, load_be32(entry + header - 4));
        pos += size;
        if (++slot == WALK_BATCH) {
            good = WALK_FIRST_BAD(&pending, slot);
            count += good;
            if (good < slot) goto bad_crc;
            slot = 0;
        }
    }
    good = WALK_FIRST_BAD(&pending, slot);
    count += good;
    if (good < slot) {
    bad_crc:
        stop = K07_BAD_CRC;
        pos = position_of(base, offsets[count]);
    }
    offsets[count] = offset_at(base, pos);
    walk->pos = pos;
    walk->count = count;
    return stop;
}

#undef WALK_LOOP
#undef WALK_TARGET
#undef WALK_BATCH
#undef WALK_PENDING
#undef WALK_ADD
#undef WALK_FIRST_BAD
