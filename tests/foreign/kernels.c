/* The C kernels of this build, asked for answers: test_foreign.py compiles it for other machines and compares.
 *
 * Arguments: the file with the cases. In it, little-endian, one after the other:
 *
 *     uint32 kind | uint32 start | uint32 alignment | uint32 length | length bytes
 *
 * kind 0: their CRC-32 that begins with start, and once more with a copy made. kind 1: a message set to be walked.
 * kind 2: the payload of an entry to be made, of magic start. Each is done with the bytes `alignment` bytes behind a page
 * that cannot be read, and once more ending where such a page begins.
 *
 * Prints "chosen NAME" and then, for every kernel that runs here, "kernel NAME" and one line a case and place:
 * the CRC in hex; the walk's stop, position, count, and then its offsets and lengths; the entry in hex. Ends with 2, and
 * the reason, when a copy is not equal, or was written beside its place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crc32.h"
#include "encode.h"
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

static uint8_t copy[MOST + 256];
enum { BEFORE = 64, MARK = 0xA5 };

/* Whether nothing was written from copy + written on, nor before the copy's place */
static int kept_to_its_place(size_t written) {
    for (size_t i = 0; i < BEFORE; i++) {
        if (copy[i] != MARK || copy[BEFORE + written + i] != MARK) return 0;
    }
    return 1;
}

static void crc(const heading *head, const uint8_t *data) {
    uint32_t alone = k07_crc32(head->start, data, head->length);
    memset(copy, MARK, head->length + 2 * BEFORE);
    uint32_t copied = k07_crc32_copy(head->start, data, head->length, copy + BEFORE);
    if (copied != alone || memcmp(copy + BEFORE, data, head->length) != 0) die("the copy is another, or its CRC");
    if (!kept_to_its_place(head->length)) die("the copy was written beside its place");
    printf("%08x\n", (unsigned)alone);
}

static void encode(const heading *head, const uint8_t *data) {
    k07_payload payload = {data, head->length};
    size_t size = K07_HEADER_BYTES(head->start) + head->length;
    memset(copy, MARK, size + 2 * BEFORE);
    uint8_t *place = copy + BEFORE, *next = k07_encode(place, place + size, &payload, 1, (int)head->start, 0);
    if (next != place + size || !kept_to_its_place(size)) die("the entry was written beside its place");
    for (size_t i = 0; i < size; i++) printf("%02x", place[i]);
    printf("\n");
}

static void answer(const heading *head, const uint8_t *data) {
    switch (head->kind) {
    case 0: crc(head, data); break;
    case 1: walk(data, head->length); break;
    default: encode(head, data);
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
