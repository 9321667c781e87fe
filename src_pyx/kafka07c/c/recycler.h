/* Large blocks of memory that are used again, so that not every fetch has its pages given by the kernel anew.
 *
 * What malloc() gets from the kernel for a block of 128 KB and more it gives back when the block is freed, or a little
 * later, and each page of the next one costs a fault: as much as the scan of a megabyte of small messages. So a few freed
 * blocks are kept, K07_KEPT_BLOCKS of them, of K07_KEPT_BYTES together.
 *
 * Slots are taken and filled by single atomic exchanges: who takes a block out of one owns it. So any thread may call
 * these at any time, with the GIL or without, and a fork() in between leaves nothing locked.
 */
#ifndef K07_RECYCLER_H
#define K07_RECYCLER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define K07_HIDE(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define K07_SHOW(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define K07_HIDE(p, n) ((void)(p), (void)(n))
#define K07_SHOW(p, n) ((void)(p), (void)(n))
#endif

enum {
    K07_KEPT_BLOCKS = 8,
    K07_KEPT_SMALLEST = 128 << 10, /* malloc() keeps smaller ones itself */
    K07_KEPT_LARGEST = 4 << 20,
    K07_KEPT_BYTES = 16 << 20
};

typedef struct { /* the beginning of a kept block */
    size_t capacity;
} k07_kept;

static _Atomic(k07_kept *) k07_kept_slots[K07_KEPT_BLOCKS];
static _Atomic size_t k07_kept_bytes;
static _Atomic unsigned k07_kept_turn;

static inline k07_kept *k07_kept_out(int slot) {
    k07_kept *block = atomic_exchange(&k07_kept_slots[slot], NULL);
    if (block != NULL) atomic_fetch_sub(&k07_kept_bytes, block->capacity);
    return block;
}

/* Puts a block into the slot; what was in it is freed */
static inline void k07_kept_in(int slot, k07_kept *block) {
    atomic_fetch_add(&k07_kept_bytes, block->capacity);
    k07_kept *before = atomic_exchange(&k07_kept_slots[slot], block);
    if (before == NULL) return;
    atomic_fetch_sub(&k07_kept_bytes, before->capacity);
    K07_SHOW(before, before->capacity);
    free(before);
}

/* At least `bytes` (0 counts as 1), as of malloc(); *capacity is what there really is. NULL: no memory. */
static inline void *k07_take(size_t bytes, size_t *capacity) {
    *capacity = bytes > 0 ? bytes : 1;
    if (bytes >= K07_KEPT_SMALLEST && bytes <= K07_KEPT_LARGEST) {
        for (int slot = 0; slot < K07_KEPT_BLOCKS; slot++) {
            if (atomic_load_explicit(&k07_kept_slots[slot], memory_order_relaxed) == NULL) continue;
            k07_kept *block = k07_kept_out(slot);
            if (block == NULL) continue;
            if (block->capacity >= bytes && block->capacity / 2 <= bytes) { /* never half of it for nothing */
                *capacity = block->capacity;
                K07_SHOW(block, *capacity);
                return block;
            }
            k07_kept_in(slot, block);
        }
    }
    return malloc(*capacity);
}

/* The end of a block of k07_take() */
static inline void k07_give(void *data, size_t capacity) {
    if (data == NULL) return;
    if (capacity < K07_KEPT_SMALLEST || capacity > K07_KEPT_LARGEST) {
        free(data);
        return;
    }
    k07_kept *block = data;
    block->capacity = capacity;
    K07_HIDE(block + 1, capacity - sizeof *block);
    int slot = 0;
    while (slot < K07_KEPT_BLOCKS && atomic_load(&k07_kept_slots[slot]) != NULL) slot++;
    if (slot == K07_KEPT_BLOCKS) slot = (int)(atomic_fetch_add(&k07_kept_turn, 1) % K07_KEPT_BLOCKS);
    k07_kept_in(slot, block);
    for (slot = 0; slot < K07_KEPT_BLOCKS && atomic_load(&k07_kept_bytes) > K07_KEPT_BYTES; slot++) {
        block = k07_kept_out(slot);
        if (block == NULL) continue;
        K07_SHOW(block, block->capacity);
        free(block);
    }
}

static inline void k07_forget(void) {
    for (int slot = 0; slot < K07_KEPT_BLOCKS; slot++) {
        k07_kept *block = k07_kept_out(slot);
        if (block == NULL) continue;
        K07_SHOW(block, block->capacity);
        free(block);
    }
}

static inline int k07_kept_count(void) {
    int count = 0;
    for (int slot = 0; slot < K07_KEPT_BLOCKS; slot++) count += atomic_load(&k07_kept_slots[slot]) != NULL;
    return count;
}

#endif
