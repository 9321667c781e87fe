"""One pass over a message set, cut anywhere: walk and check it, open its wrappers, fill columns.

Layout of an entry, big-endian (kafka.message.Message of 0.7.2)::

    int32 size | int8 magic | [int8 attributes, if magic is 1] | uint32 crc of the payload | payload

``size`` counts what follows it. Codec = attributes & 3; the payload of a compressed entry (a wrapper) inflates to a
message set, to any depth. Damage to magic and attributes is outside the CRC: what stays a known magic and codec cannot
be seen.

The plain entries go by in C (c/walk.c) without the GIL; only a wrapper comes back here, is inflated, and is walked from
a stack, not by recursion. All that one stored entry inflates to comes off one budget. Each wrapper inside it costs us
time and objects as well, and millions of small ones compress to a few kilobytes: so they are counted, too.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from kafka07c._compress import InflateError, inflate
from kafka07c.config import MAX_INNER_WRAPPERS, MAX_NESTING

from kafka07c._crc32 cimport (
    K07_BAD_CODEC,
    K07_BAD_CRC,
    K07_BAD_MAGIC,
    K07_BAD_SIZE,
    K07_CUT,
    K07_END,
    K07_FULL,
    K07_WRAPPER,
    crc32_of,
    k07_walk,
    walk_plain,
)
from kafka07c._memory cimport Block, address, as_int32, as_int64
from kafka07c._wire cimport load_int32, load_uint32


cdef enum:
    WRAPPER_HEADER_BYTES = 10  # always magic 1: magic 0 has no attributes
    NOGIL_BYTES = 16384  # fewer are walked with the GIL held: to let it go and take it back costs as much
    FEWEST_ROWS = 16

cdef Py_ssize_t NESTING = MAX_NESTING
cdef Py_ssize_t INNER_WRAPPERS = MAX_INNER_WRAPPERS


class Damage:
    """Where and how a scan ended: ``position`` of the bad entry in the bytes, ``reason``, and ``next_position`` or None."""

    __slots__ = ("position", "reason", "next_position")

    def __init__(self, position, reason, next_position):
        self.position = position
        self.reason = reason
        self.next_position = next_position


@cython.final
cdef class Columns:
    cdef const uint8_t *payload(self, Py_ssize_t i) noexcept nogil:
        if self.payloads is None:
            return self.data + (as_int64(self.offsets)[i + 1] - self.base - as_int32(self.lengths)[i])
        return (<const uint8_t **> self.payloads.data)[i]

    cdef int32_t magic(self, Py_ssize_t i) noexcept nogil:
        cdef int64_t *offsets
        if self.regions is None:
            offsets = as_int64(self.offsets)
            return <int32_t> (offsets[i + 1] - offsets[i] - as_int32(self.lengths)[i] - 9)
        return as_int32(self.regions)[i] & 1

    cdef int64_t offset(self, Py_ssize_t i) noexcept nogil:
        return as_int64(self.offsets)[i]

    cdef int64_t next_offset(self, Py_ssize_t i) noexcept nogil:
        return as_int64(self.offsets)[i + 1] if self.next_offsets is None else as_int64(self.next_offsets)[i]

    cdef int32_t index(self, Py_ssize_t i) noexcept nogil:
        return 0 if self.indexes is None else as_int32(self.indexes)[i]

    cdef int32_t length(self, Py_ssize_t i) noexcept nogil:
        return as_int32(self.lengths)[i]

    cdef int32_t region(self, Py_ssize_t i) noexcept nogil:
        return 0 if self.regions is None else as_int32(self.regions)[i] >> 1

    cdef void append(self, Py_ssize_t filled, Columns part, Py_ssize_t begin, int32_t first_region) noexcept nogil:
        """Copies the rows of ``part`` from ``begin`` on behind the first ``filled`` rows; there is room for them."""
        cdef Py_ssize_t i, to = filled, count = part.count - begin
        cdef const int64_t *offsets = as_int64(part.offsets)
        cdef const int32_t *lengths = as_int32(part.lengths)
        cdef const uint8_t **payloads = <const uint8_t **> self.payloads.data
        cdef int32_t *regions = as_int32(self.regions)
        cdef int64_t end
        if count <= 0:
            return
        memcpy(as_int64(self.offsets) + filled, offsets + begin, count * sizeof(int64_t))
        memcpy(as_int32(self.lengths) + filled, lengths + begin, count * sizeof(int32_t))
        if part.payloads is None:
            memcpy(as_int64(self.next_offsets) + filled, offsets + begin + 1, count * sizeof(int64_t))
            memset(as_int32(self.indexes) + filled, 0, count * sizeof(int32_t))
            for i in range(begin, part.count):
                end = offsets[i + 1]
                payloads[to] = part.data + (end - part.base - lengths[i])
                regions[to] = first_region * 2 + <int32_t> (end - offsets[i] - lengths[i] - 9)
                to += 1
        else:
            memcpy(as_int64(self.next_offsets) + filled, as_int64(part.next_offsets) + begin, count * sizeof(int64_t))
            memcpy(as_int32(self.indexes) + filled, as_int32(part.indexes) + begin, count * sizeof(int32_t))
            memcpy(payloads + filled, <const uint8_t **> part.payloads.data + begin, count * sizeof(void *))
            for i in range(begin, part.count):
                regions[to] = first_region * 2 + as_int32(part.regions)[i]
                to += 1


cdef Columns separate_columns(Py_ssize_t count):
    """Columns for ``count`` rows that are to be appended, with a block for each; the memory behind them is the caller's
    to name in ``views``, ``data`` and ``base``."""
    cdef Columns columns = Columns.__new__(Columns)
    columns.count = count
    columns.views = []
    columns.offsets = Block.allocate(count * sizeof(int64_t))
    columns.next_offsets = Block.allocate(count * sizeof(int64_t))
    columns.lengths = Block.allocate(count * sizeof(int32_t))
    columns.indexes = Block.allocate(count * sizeof(int32_t))
    columns.regions = Block.allocate(count * sizeof(int32_t))
    columns.payloads = Block.allocate(count * sizeof(void *))
    return columns


@cython.final
cdef class Frame:
    pass


cdef Frame frame_over(object view, int64_t base, int32_t region):
    cdef Frame frame = Frame.__new__(Frame)
    frame.view = view
    frame.data = address(view)
    frame.length = len(view)
    frame.base = base
    frame.region = region
    return frame


@cython.final
cdef class Scan:
    """The scan of one message set; all is done when the constructor returns.

    ``view``: a read-only memoryview of bytes (``_memory.read_only_view``); the columns point into it and keep it.
    """

    def __init__(self, view, int64_t base, *, bint final, bint shallow, int64_t max_inflated_bytes):
        self._final = final
        self._shallow = shallow
        self._max_inflated = max_inflated_bytes
        self._run(frame_over(view, base, 0))

    cdef int _run(self, Frame top) except -1:
        cdef Columns columns = Columns.__new__(Columns)
        cdef int status
        columns.views = [top.view]
        columns.data = top.data
        columns.base = top.base
        self.columns = columns
        self._capacity = first_guess(top)
        columns.offsets = Block.allocate((self._capacity + 1) * sizeof(int64_t))
        columns.lengths = Block.allocate(self._capacity * sizeof(int32_t))
        while True:
            status = self._walk(top)
            if status == K07_FULL:
                self._resize(self._capacity * 2)
            elif status == K07_WRAPPER:
                failure = self._take_wrapper(top)
                if failure is not None:
                    self.error = Damage(top.pos, failure, self._next_believed(top))
                    break
            elif status == K07_END or (status == K07_CUT and not self._final):
                break
            else:
                following = None if status == K07_BAD_SIZE else self._next_believed(top)
                self.error = Damage(top.pos, damage(status, top), following)
                break
        self.valid_bytes = top.pos
        if columns.payloads is None:
            as_int64(columns.offsets)[columns.count] = top.base + top.pos
        if self._capacity - columns.count > columns.count + 4096:  # a wrong first guess, worth giving back
            self._resize(columns.count)
        return 0

    cdef int _walk(self, Frame frame) except -1:
        """Walks plain entries of a frame into the columns; the status that stopped it."""
        cdef Columns columns = self.columns
        cdef k07_walk walk
        cdef int status
        cdef int64_t begin = columns.count
        walk.data = frame.data
        walk.length = frame.length
        walk.pos = frame.pos
        walk.base = frame.base
        walk.offsets = as_int64(columns.offsets)
        walk.lengths = as_int32(columns.lengths)
        walk.count = begin
        walk.capacity = self._capacity
        if frame.length - frame.pos < NOGIL_BYTES:
            status = walk_plain(&walk)
        else:
            with nogil:
                status = walk_plain(&walk)
        if columns.payloads is not None:
            fill(columns, begin, walk.count, frame)
        if frame.region and walk.count > begin:
            self._count_inside(begin, walk.count)
        columns.count = walk.count
        frame.pos = walk.pos
        return status

    cdef int _count_inside(self, int64_t begin, int64_t end) except -1:
        """Messages inside a wrapper have its offset, and are counted."""
        cdef int64_t *offsets = as_int64(self.columns.offsets)
        cdef int64_t *next_offsets = as_int64(self.columns.next_offsets)
        cdef int32_t *indexes = as_int32(self.columns.indexes)
        cdef int64_t i
        for i in range(begin, end):
            offsets[i] = self._wrapper_start
            next_offsets[i] = self._wrapper_start
            indexes[i] = self._index
            self._index += 1
        return 0

    cdef object _take_wrapper(self, Frame top):
        """Takes the wrapper that the walk of the set itself came to, and goes past it: None, or what is wrong with it.

        What was good inside before the bad place stays in the columns.
        """
        cdef Columns columns = self.columns
        cdef Py_ssize_t begin
        cdef Wrapper wrapper
        cdef list stack = []
        failure = read_wrapper(top, &wrapper)
        if failure is not None:
            return failure
        if self._shallow:
            self._take_stored(top, &wrapper)
            return None
        self._leave_plain(top)
        begin = columns.count
        self._budget = self._max_inflated
        self._inner_wrappers = 0
        self._index = 0
        self._wrapper_start = top.base + top.pos
        failure = self._open(stack, top, &wrapper)
        if failure is None:
            failure = self._walk_inside(stack)
        if failure is not None:
            return failure
        top.pos += wrapper.entry_bytes
        if columns.count > begin:
            as_int64(columns.next_offsets)[columns.count - 1] = top.base + top.pos
        return None

    cdef object _walk_inside(self, list stack):
        cdef Frame frame
        cdef Wrapper wrapper
        cdef int status
        while stack:
            frame = stack[len(stack) - 1]
            status = self._walk(frame)
            if status == K07_END:
                stack.pop()
            elif status == K07_FULL:
                self._resize(self._capacity * 2)
            elif status == K07_WRAPPER:
                failure = read_wrapper(frame, &wrapper)
                if failure is None:
                    failure = self._open(stack, frame, &wrapper)
                if failure is not None:
                    return f"inside its wrapper at byte {frame.pos} (depth {len(stack)}): {failure}"
                frame.pos += wrapper.entry_bytes
            else:
                return f"inside its wrapper at byte {frame.pos} (depth {len(stack)}): {damage(status, frame)}"
        return None

    cdef object _open(self, list stack, Frame frame, Wrapper *wrapper):
        """Inflates a wrapper that lies in ``frame`` onto the stack: None, or why not."""
        cdef Py_ssize_t start = wrapper.payload - frame.data
        cdef list views = self.columns.views
        if len(stack) == NESTING:
            return f"wrappers are nested more than {NESTING} deep"
        if frame.region:
            self._inner_wrappers += 1
            if self._inner_wrappers > INNER_WRAPPERS:
                return f"there are more than {INNER_WRAPPERS} wrappers inside one entry"
        try:
            view = inflate(wrapper.codec, frame.view[start:start + wrapper.length], self._budget)
        except InflateError as error:
            return str(error)
        self._budget -= len(view)
        views.append(view)
        stack.append(frame_over(view, 0, <int32_t> len(views) - 1))
        return None

    cdef int _take_stored(self, Frame top, Wrapper *wrapper) except -1:
        """Takes a wrapper as a message of its own, for a shallow scan."""
        cdef Columns columns = self.columns
        if columns.count == self._capacity:
            self._resize(self._capacity * 2)
        as_int64(columns.offsets)[columns.count] = top.base + top.pos
        as_int32(columns.lengths)[columns.count] = <int32_t> wrapper.length
        columns.count += 1
        top.pos += wrapper.entry_bytes
        return 0

    cdef int _resize(self, int64_t capacity) except -1:
        cdef Columns columns = self.columns
        self._capacity = capacity
        columns.offsets.resize((capacity + 1) * sizeof(int64_t))
        columns.lengths.resize(capacity * sizeof(int32_t))
        if columns.payloads is not None:
            columns.next_offsets.resize(capacity * sizeof(int64_t))
            columns.indexes.resize(capacity * sizeof(int32_t))
            columns.payloads.resize(capacity * sizeof(void *))
            columns.regions.resize(capacity * sizeof(int32_t))
        return 0

    cdef int _leave_plain(self, Frame top) except -1:
        """Before the first wrapper: gives every column a block of its own."""
        cdef Columns columns = self.columns
        if columns.payloads is not None:
            return 0
        columns.next_offsets = Block.allocate(self._capacity * sizeof(int64_t))
        columns.indexes = Block.allocate(self._capacity * sizeof(int32_t))
        columns.regions = Block.allocate(self._capacity * sizeof(int32_t))
        columns.payloads = Block.allocate(self._capacity * sizeof(void *))
        fill(columns, 0, columns.count, top)
        return 0

    cdef object _next_believed(self, Frame top):
        """Where the bad entry that the walk came to ends, if a good entry or the log's end is there; else None."""
        cdef int64_t end, size
        if top.length - top.pos < 4:
            return None
        size = load_int32(top.data + top.pos)
        end = top.pos + 4 + size
        if size < 5 or end > top.length:
            return None
        if end == top.length:
            return end if self._final else None
        if top.length - end < 4:
            return None
        size = 4 + <int64_t> load_int32(top.data + end)
        if size < 9 or size > top.length - end:
            return None
        follower = Scan(top.view[end:end + size], 0, final=False, shallow=self._shallow,
                        max_inflated_bytes=self._max_inflated)
        return end if follower.valid_bytes == size else None


cdef int64_t first_guess(Frame top) except -1:
    """Rows to begin with: as many as the first entry's size makes of the set, which is right for like entries."""
    cdef int64_t size = 0
    if top.length >= 4:
        size = load_int32(top.data) + <int64_t> 4
    if size < 9 or size > top.length:
        return FEWEST_ROWS
    return top.length // size + top.length // (size * 16) + FEWEST_ROWS


cdef object read_wrapper(Frame frame, Wrapper *wrapper):
    """The wrapper that a walk came to; its header is read here, once, and nowhere else. None, or what is wrong."""
    cdef const uint8_t *entry = frame.data + frame.pos
    cdef uint32_t stored, crc
    wrapper.entry_bytes = 4 + <int64_t> load_int32(entry)
    wrapper.codec = entry[5] & 3
    wrapper.payload = entry + WRAPPER_HEADER_BYTES
    wrapper.length = wrapper.entry_bytes - WRAPPER_HEADER_BYTES
    if not 0 <= wrapper.length <= frame.length - frame.pos - WRAPPER_HEADER_BYTES or wrapper.codec not in (1, 2):
        return "its header changed while it was read: somebody writes to these bytes"
    stored = load_uint32(wrapper.payload - 4)
    if wrapper.length < NOGIL_BYTES:
        crc = crc32_of(0, wrapper.payload, wrapper.length)
    else:
        with nogil:
            crc = crc32_of(0, wrapper.payload, wrapper.length)
    return None if crc == stored else crc_reason(stored, wrapper.length, crc)


cdef object damage(int status, Frame frame):
    """What is wrong with the entry that the walk of ``frame`` came to, in words."""
    cdef const uint8_t *entry = frame.data + frame.pos
    cdef int64_t left = frame.length - frame.pos
    cdef const uint8_t *payload
    cdef int64_t length
    if status == K07_BAD_SIZE:
        return f"its size field is {load_int32(entry)}, below the size of a header"
    if status == K07_BAD_MAGIC:
        return f"its magic byte is {entry[4]}, where 0.7 has 0 or 1"
    if status == K07_BAD_CODEC:
        return f"its attributes byte {entry[5]:#04x} names codec 3, which 0.7 does not have"
    if status == K07_BAD_CRC:
        payload = entry + 9 + (entry[4] & 1)
        length = max(0, min(load_int32(entry) + <int64_t> 4, left) - (payload - entry))
        return crc_reason(load_uint32(payload - 4), length, crc32_of(0, payload, length))
    if left < 4:
        return f"it is cut: {left} bytes of a size field, then nothing follows"
    return f"it is cut: its size field is {load_int32(entry)}, and {left - 4} bytes follow"


cdef object crc_reason(uint32_t stored, int64_t length, uint32_t crc):
    return f"its CRC field is {stored:#010x}, its payload of {length} bytes has {crc:#010x}"


cdef void fill(Columns columns, int64_t begin, int64_t end, Frame frame) noexcept nogil:
    """The columns beyond offsets and lengths, for plain entries that a walk just took.

    From what the walk left alone (``offsets[end]`` is where it stopped), not from the bytes: they may have changed.
    """
    cdef int64_t *offsets = as_int64(columns.offsets)
    cdef int32_t *lengths = as_int32(columns.lengths)
    cdef int64_t *next_offsets = as_int64(columns.next_offsets)
    cdef int32_t *indexes = as_int32(columns.indexes)
    cdef int32_t *regions = as_int32(columns.regions)
    cdef const uint8_t **payloads = <const uint8_t **> columns.payloads.data
    cdef int64_t i, entry_end
    for i in range(begin, end):
        entry_end = offsets[i + 1]
        next_offsets[i] = entry_end
        indexes[i] = 0
        payloads[i] = frame.data + (entry_end - frame.base - lengths[i])
        regions[i] = frame.region * 2 + <int32_t> (entry_end - offsets[i] - lengths[i] - 9)
