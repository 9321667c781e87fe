/* Every C kernel against zlib's CRC-32 and a slow walk, on random cases between pages that nobody may touch.
 *
 *     kernels KERNEL SEED FIRST COUNT          runs cases FIRST to FIRST + COUNT - 1 of a seed
 *     kernels KERNEL SEED FIRST COUNT print    only those that are walks; what the kernel found is printed as well
 *
 * The last line is "ok COUNT", with the numbers of what was tried. A difference ends it with 1, a touched guard page with
 * 3, and the line says which case of which seed it was. Case n of a seed is the same on every machine and for every kernel.
 *
 * Each case is done twice, with what is read ending right before a guard page and with it beginning right after one;
 * what is written, columns included, lies the other way round.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crc32.h"
#include "encode.h"
#include "walk.h"

enum { MOST = 64 << 10, MOST_ENTRIES = 64, KINDS = 4 };
enum { CRC, COPY, WALK, ENCODE };

static const char *kernel;
static uint64_t seed, running;
static uint64_t tried[KINDS], stops[8];
static int printing;

/* Random numbers: SplitMix64 (S. Vigna, public domain), begun anew for each case */

static uint64_t state;

static uint64_t draw(void) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t below(size_t n) {
    return (size_t)(draw() % n);
}

static int one_in(size_t n) {
    return below(n) == 0;
}

/* Mostly around the sizes of blocks, now and then some thousand */
static size_t some_length(void) {
    switch (below(8)) {
    case 0:
        return below(20);
    case 1:
    case 2:
        return below(160);
    case 3:
        return 64 * (1 + below(20)) + below(5) - 2;
    case 4:
        return below(1200);
    case 5:
        return below(5000);
    default:
        return below(300);
    }
}

static void fill_random(uint8_t *p, size_t length) {
    int way = (int)below(8);
    for (size_t i = 0; i < length; i++) p[i] = way == 0 ? 0 : way == 1 ? 0xFF : (uint8_t)(draw() >> 24);
}

/* Memory between guard pages */

typedef struct {
    uint8_t *first, *end;
} room;

static room source, target, offsets_room, lengths_room;

static room make_room(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size = (size + page - 1) / page * page;
    uint8_t *pages = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, size, PROT_READ | PROT_WRITE)) {
        perror("mmap");
        exit(2);
    }
    return (room){pages + page, pages + page + size};
}

static uint8_t *at(const room *in, size_t length, int end) {
    return end ? in->end - length : in->first;
}

static void touched(int signal_number) {
    char line[160];
    int n = snprintf(line, sizeof line, "%s: signal %d in case %llu of seed %llu\n", kernel, signal_number,
                     (unsigned long long)running, (unsigned long long)seed);
    if (write(1, line, (size_t)n) < 0) _exit(4);
    _exit(3);
}

static void differs(const char *what) {
    printf("%s: %s in case %llu of seed %llu\n", kernel, what, (unsigned long long)running, (unsigned long long)seed);
    exit(1);
}

/* The reference */

static unsigned long (*zlib_crc32)(unsigned long crc, const unsigned char *data, unsigned int length);

static uint32_t reference(uint32_t crc, const uint8_t *data, size_t length) {
    return length == 0 ? crc : (uint32_t)zlib_crc32(crc, data, (unsigned)length); /* zlib takes NULL, 0 otherwise */
}

static int find_zlib(void) {
    static const char *const names[] = {"libz.so.1", "libz.so", "libz.1.dylib", "libz.dylib"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW);
        void *found = library ? dlsym(library, "crc32") : NULL;
        if (found != NULL) {
            memcpy(&zlib_crc32, &found, sizeof found);
            return 1;
        }
    }
    return 0;
}

static int64_t be32(const uint8_t *p) {
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

static void put_be32(uint8_t *p, uint32_t value) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(value >> (24 - 8 * i));
}

typedef struct {
    int stop;
    int64_t pos, count;
    int64_t offsets[MOST_ENTRIES + 1];
    int32_t lengths[MOST_ENTRIES];
} found;

/* What walk.h says, one rule after the other */
static void slow_walk(const uint8_t *data, int64_t length, int64_t base, int64_t capacity, found *out) {
    out->pos = out->count = 0;
    for (;;) {
        const uint8_t *entry = data + out->pos;
        int64_t left = length - out->pos;
        out->offsets[out->count] = base + out->pos;
        if (left == 0) {
            out->stop = K07_END;
            return;
        }
        if (left < 4) {
            out->stop = K07_CUT;
            return;
        }
        int64_t size = be32(entry);
        if (size < 5 || (left > 4 && entry[4] == 1 && size < 6)) {
            out->stop = K07_BAD_SIZE;
            return;
        }
        if (4 + size > left) {
            out->stop = K07_CUT;
            return;
        }
        if (entry[4] > 1) {
            out->stop = K07_BAD_MAGIC;
            return;
        }
        int codec = entry[4] == 1 ? entry[5] % 4 : 0;
        if (codec != 0) {
            out->stop = codec == 3 ? K07_BAD_CODEC : K07_WRAPPER;
            return;
        }
        if (out->count == capacity) {
            out->stop = K07_FULL;
            return;
        }
        int64_t header = entry[4] == 1 ? 10 : 9, payload = 4 + size - header;
        if (reference(0, entry + header, (size_t)payload) != (uint32_t)be32(entry + header - 4)) {
            out->stop = K07_BAD_CRC;
            return;
        }
        out->lengths[out->count++] = (int32_t)payload;
        out->pos += 4 + size;
    }
}

static size_t slow_entry(uint8_t *out, const uint8_t *payload, size_t length, int magic, int attributes) {
    size_t header = magic ? 10 : 9;
    put_be32(out, (uint32_t)(header - 4 + length));
    out[4] = (uint8_t)magic;
    if (magic) out[5] = (uint8_t)attributes;
    put_be32(out + header - 4, reference(0, payload, length));
    memcpy(out + header, payload, length);
    return header + length;
}

/* The cases */

static uint8_t bytes[MOST], wanted[2 * MOST];

static void try_crc(void) {
    size_t length = some_length();
    uint32_t start = one_in(2) ? 0 : (uint32_t)draw();
    fill_random(bytes, length);
    uint32_t want = reference(start, bytes, length);
    for (int end = 0; end < 2; end++) {
        uint8_t *data = memcpy(at(&source, length, end), bytes, length);
        if (k07_crc32(start, data, length) != want) differs("the CRC differs");
        size_t cut = below(length + 1);
        if (k07_crc32(k07_crc32(start, data, cut), data + cut, length - cut) != want) differs("the CRC in two differs");
    }
}

static void try_copy(void) {
    size_t length = some_length(), beside = one_in(2) ? 0 : below(100);
    uint32_t start = one_in(2) ? 0 : (uint32_t)draw();
    fill_random(bytes, length);
    uint32_t want = reference(start, bytes, length);
    for (int end = 0; end < 2; end++) {
        uint8_t *data = memcpy(at(&source, length, end), bytes, length);
        uint8_t *around = memset(at(&target, length + 2 * beside, !end), 0xA5, length + 2 * beside);
        if (k07_crc32_copy(start, data, length, around + beside) != want) differs("the CRC of a copy differs");
        if (memcmp(around + beside, bytes, length) != 0) differs("the copy differs");
        for (size_t i = 0; i < beside; i++) {
            if (around[i] != 0xA5 || around[beside + length + i] != 0xA5) differs("a copy wrote beside its place");
        }
    }
}

/* A set of some entries; then, mostly, something is done to it */
static size_t some_set(uint8_t *out) {
    static uint8_t payload[MOST];
    size_t starts[16], count = below(14), longest = one_in(8) ? 3000 : one_in(3) ? 300 : 90, length = 0;
    int magics = (int)below(3);
    for (size_t i = 0; i < count; i++) {
        size_t size = one_in(6) ? below(4) : below(longest + 1);
        int attributes = one_in(12) ? (int)below(256) : one_in(8) ? 4 * (int)below(64) : 0;
        fill_random(payload, size);
        starts[i] = length;
        length += slow_entry(out + length, payload, size, magics == 2 ? (int)below(2) : 1 - magics, attributes);
    }
    for (size_t times = below(3); times > 0 && length >= 8; times--) {
        size_t place = below(length), start = count ? starts[below(count)] : 0;
        static const uint32_t sizes[] = {0, 1, 4, 5, 6, 7, 9, 10, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000};
        switch (below(6)) {
        case 0:
            out[place] ^= (uint8_t)(1 << below(8));
            break;
        case 1:
            out[place] = (uint8_t)draw();
            break;
        case 2:
            length = place;
            count = 0;
            break;
        case 3:
            if (start + 4 <= length) put_be32(out + start, sizes[below(sizeof sizes / sizeof *sizes)]);
            break;
        case 4:
            if (start + 4 <= length) put_be32(out + start, (uint32_t)(be32(out + start) + (int)below(5) - 2));
            break;
        default:
            if (start + 6 <= length) {
                out[start + 4] = (uint8_t)below(4);
                out[start + 5] = (uint8_t)below(256);
            }
        }
    }
    if (one_in(10)) {
        length = below(40);
        for (size_t i = 0; i < length; i++) out[i] = "\0\0\0\0\1\5\6\n\377"[below(9)];
    }
    return length;
}

static void print_walk(const uint8_t *data, size_t length, const k07_walk *walk, int stop) {
    printf("%llu ", (unsigned long long)running);
    for (size_t i = 0; i < length; i++) printf("%02x", data[i]);
    printf(" %lld %d %lld %lld", (long long)walk->base, stop, (long long)walk->pos, (long long)walk->capacity);
    for (int64_t i = 0; i < walk->count; i++) printf(" %lld %d", (long long)walk->offsets[i], walk->lengths[i]);
    printf("\n");
}

static void try_walk(void) {
    static found want;
    size_t length = some_set(bytes);
    int64_t base = one_in(2) ? 0 : one_in(2) ? (int64_t)(draw() >> 20) : INT64_MAX - (int64_t)length;
    int64_t capacity = one_in(3) ? (int64_t)below(16) : MOST_ENTRIES;
    slow_walk(bytes, (int64_t)length, base, capacity, &want);
    stops[want.stop]++;
    for (int end = 0; end < 2; end++) {
        k07_walk walk = {
            .data = memcpy(at(&source, length, end), bytes, length),
            .length = (int64_t)length,
            .base = base,
            .offsets = (int64_t *)(void *)at(&offsets_room, 8 * (size_t)(capacity + 1), !end),
            .lengths = (int32_t *)(void *)at(&lengths_room, 4 * (size_t)capacity, !end),
            .capacity = capacity,
        };
        int stop = k07_walk_plain(&walk);
        if (stop != want.stop || walk.pos != want.pos || walk.count != want.count) differs("the walk ends differently");
        if (memcmp(walk.offsets, want.offsets, 8 * (size_t)(want.count + 1)) != 0) differs("the offsets differ");
        if (memcmp(walk.lengths, want.lengths, 4 * (size_t)want.count) != 0) differs("the lengths differ");
        if (memcmp(walk.data, bytes, length) != 0) differs("the walk wrote to what it read");
        if (printing && end) print_walk(bytes, length, &walk, stop);
    }
}

static void try_encode(void) {
    k07_payload payloads[12];
    size_t starts[12], count = below(12), filled = 0, size = 0;
    int magic = (int)below(2), attributes = one_in(2) ? 0 : (int)below(256);
    for (size_t i = 0; i < count; i++) {
        size_t length = one_in(6) ? 0 : one_in(2) ? below(100) : some_length();
        fill_random(bytes + filled, length);
        starts[i] = filled;
        payloads[i].length = (int64_t)length;
        filled += length;
        size += slow_entry(wanted + size, bytes + starts[i], length, magic, attributes);
    }
    for (int end = 0; end < 2; end++) {
        uint8_t *data = memcpy(at(&source, filled, end), bytes, filled);
        for (size_t i = 0; i < count; i++) payloads[i].data = data + starts[i];
        uint8_t *out = memset(at(&target, size, !end), 0xA5, size);
        uint8_t *next = k07_encode(out, out + size, payloads, count, magic, attributes);
        if (next != out + size) differs("the entries end elsewhere");
        if (memcmp(out, wanted, size) != 0) differs("the entries differ");
    }
}

int main(int argc, char **argv) {
    if (argc < 5 || k07_crc32_select(kernel = argv[1]) != 0 || !find_zlib()) {
        fprintf(stderr, "wanted: KERNEL SEED FIRST COUNT, a kernel of this CPU, and zlib\n");
        return 2;
    }
    seed = strtoull(argv[2], NULL, 10);
    uint64_t first = strtoull(argv[3], NULL, 10), count = strtoull(argv[4], NULL, 10);
    printing = argc > 5;
    source = make_room(MOST);
    target = make_room(2 * MOST);
    offsets_room = make_room(8 * (MOST_ENTRIES + 1));
    lengths_room = make_room(4 * MOST_ENTRIES);
    signal(SIGSEGV, touched);
    signal(SIGBUS, touched);
    static void (*const kinds[KINDS])(void) = {try_crc, try_copy, try_walk, try_encode};
    for (running = first; running < first + count; running++) {
        state = seed * 0xD1342543DE82EF95u + running * 0x2545F4914F6CDD1Du;
        draw();
        size_t kind = below(KINDS);
        if (printing && kind != WALK) continue;
        kinds[kind]();
        tried[kind]++;
    }
    printf("ok %llu crc %llu copy %llu walk %llu encode %llu stops", (unsigned long long)count,
           (unsigned long long)tried[CRC], (unsigned long long)tried[COPY], (unsigned long long)tried[WALK],
           (unsigned long long)tried[ENCODE]);
    for (int stop = 0; stop < 8; stop++) printf(" %llu", (unsigned long long)stops[stop]);
    printf("\n");
    return 0;
}
