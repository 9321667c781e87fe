/* The C kernels of this build, asked for answers: test_foreign.py compiles it for other machines and compares.
 *
 * Arguments: the file with the cases. In it, little-endian, one after the other:
 *
 *     uint32 kind | uint32 start | uint32 alignment | uint32 length | length bytes
 *
 * kind 0: their CRC-32 that begins with start. kind 1: a message set to be walked. Each is done with the bytes
 * `alignment` bytes behind a page that cannot be read, and once more ending where such a page begins.
 *
 * Prints "chosen NAME" and then, for every kernel that runs here, "kernel NAME" and one line a case and place:
 * the CRC in hex; or the walk's stop, position, count, and then its offsets and lengths.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crc32.h"
#include "walk.h"

enum { MOST = 1 << 20, MOST_ENTRIES = 1 << 12 };

typedef struct {
    uint32_t kind, start, alignment, length;
} heading;

static uint8_t *first, *end; /* what lies between two pages that cannot be read */

static void die(const char *what) {
    perror(what);
    exit(2);
}

static void make_room(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (MOST + page - 1) / page * page;
    uint8_t *pages = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) die("mmap");
    if (mprotect(pages + page, room, PROT_READ | PROT_WRITE)) die("mprotect");
    first = pages + page;
    end = first + room;
}

static void walk(const uint8_t *data, int64_t length) {
    static int64_t offsets[MOST_ENTRIES + 1];
    static int32_t lengths[MOST_ENTRIES];
    k07_walk w = {.data = data, .length = length, .base = 1000, .offsets = offsets, .lengths = lengths,
                  .capacity = MOST_ENTRIES};
    int stop = k07_walk_plain(&w);
    printf("%d %lld %lld", stop, (long long)w.pos, (long long)w.count);
    for (int64_t i = 0; i < w.count; i++) printf(" %lld %d", (long long)offsets[i], (int)lengths[i]);
    printf("\n");
}

static void answer(const heading *head, const uint8_t *data) {
    if (head->kind == 0) {
        printf("%08x\n", (unsigned)k07_crc32(head->start, data, head->length));
    } else {
        walk(data, head->length);
    }
}

static void answer_all(FILE *cases) {
    heading head;
    rewind(cases);
    while (fread(&head, sizeof head, 1, cases) == 1) {
        if (head.length + head.alignment > MOST) die("a case is too long");
        uint8_t *places[2] = {first + head.alignment, end - head.length};
        if (fread(places[0], 1, head.length, cases) != head.length) die("the cases end inside one");
        answer(&head, places[0]);
        memmove(places[1], places[0], head.length);
        answer(&head, places[1]);
    }
}

int main(int count, char **arguments) {
    FILE *cases = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (cases == NULL) die("the file with the cases");
    make_room();
    printf("chosen %s\n", k07_crc32_kernel());
    for (int i = 0; k07_crc32_available(i) != NULL; i++) {
        const char *name = k07_crc32_available(i);
        if (k07_crc32_select(name) || strcmp(k07_crc32_kernel(), name) != 0) die(name);
        printf("kernel %s\n", name);
        answer_all(cases);
    }
    return 0;
}
