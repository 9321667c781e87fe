"""One pass over a message set, cut anywhere: walk and check it, open its wrappers, fill columns.

Layout of an entry, big-endian (kafka.message.Message of 0.7.2)::

    int32 size | int8 magic | [int8 attributes, if magic is 1] | uint32 crc of the payload | payload

``size`` counts what follows it. Codec = attributes & 3; the payload of a compressed entry (a wrapper) inflates to a
message set, to any depth. Damage to magic and attributes is outside the CRC: what stays a known magic and codec cannot
be seen.

The plain entries go by in C (c/walk.c) without the GIL; only a wrapper comes back here, is inflated, and is walked from
a stack, not by recursion. All that one stored entry inflates to comes off one budget.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafka07c._compress import InflateError, inflate
from kafka07c.config import MAX_NESTING

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
    NOGIL_BYTES = 16384  # fewer are walked with the GIL held: to let it go and take it back costs as much
    FEWEST_ROWS = 16

cdef Py_ssize_t NESTING = MAX_NESTING


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


@cython.final
cdef class Frame:
    """A message set inside a wrapper, and how far it has been walked."""


cdef Frame frame_over(object view, int32_t region):
    cdef Frame frame = Frame.__new__(Frame)
    frame.view = view
    frame.data = address(view)
    frame.length = len(view)
    frame.pos = 0
    frame.region = region
    return frame


@cython.final
cdef class Scan:
    """The scan of one message set; all is done when the constructor returns.

    ``view``: a read-only memoryview of bytes (``_memory.read_only_view``); the columns point into it and keep it.
    """

    def __init__(self, view, int64_t base, *, bint final, bint shallow, int64_t max_inflated_bytes):
        self._view = view
        self._data = address(view)
        self._length = len(view)
        self._base = base
        self._final = final
        self._shallow = shallow
        self._max_inflated = max_inflated_bytes
        self._run()
        self._view = None

    cdef int _run(self) except -1:
        cdef Columns columns = Columns.__new__(Columns)
        cdef int64_t pos = 0
        cdef int status
        columns.views = [self._view]
        columns.data = self._data
        columns.base = self._base
        self.columns = columns
        self._capacity = self._first_guess()
        columns.offsets = Block.allocate((self._capacity + 1) * sizeof(int64_t))
        columns.lengths = Block.allocate(self._capacity * sizeof(int32_t))
        while True:
            status = self._walk_top(&pos)
            if status == K07_FULL:
                self._make_room(1)
            elif status == K07_WRAPPER:
                failure = self._check_wrapper(pos) or (None if self._shallow else self._open_wrapper(pos))
                if failure is not None:
                    self.error = Damage(pos, failure, self._next_believed(pos))
                    break
                if self._shallow:
                    self._take_stored(pos)
                pos += 4 + <int64_t> load_int32(self._data + pos)
            elif status == K07_END or (status == K07_CUT and not self._final):
                break
            else:
                following = None if status == K07_BAD_SIZE else self._next_believed(pos)
                self.error = Damage(pos, self._damage(status, self._data, pos, self._length), following)
                break
        self.valid_bytes = pos
        if columns.payloads is None:
            as_int64(columns.offsets)[columns.count] = self._base + pos
        self._give_back()
        return 0

    def _first_guess(self):
        """Rows to begin with: as many as the first entry's size makes of the set, which is right for like entries."""
        cdef int64_t size = 0
        if self._length >= 4:
            size = load_int32(self._data) + <int64_t> 4
        if size < 9 or size > self._length:
            return FEWEST_ROWS
        return self._length // size + self._length // (size * 16) + FEWEST_ROWS

    cdef int _walk_top(self, int64_t *pos) except -1:
        """Walks plain entries of the set itself into the columns; the status that stopped it."""
        cdef Columns columns = self.columns
        cdef k07_walk walk
        cdef int status
        cdef bint plain = columns.payloads is None
        cdef int64_t begin = columns.count
        walk.data = self._data
        walk.length = self._length
        walk.pos = pos[0]
        walk.base = self._base
        walk.offsets = as_int64(columns.offsets)
        walk.lengths = as_int32(columns.lengths)
        walk.count = columns.count
        walk.capacity = self._capacity
        if self._length - pos[0] < NOGIL_BYTES:
            status = walk_plain(&walk)
        else:
            with nogil:
                status = walk_plain(&walk)
        if not plain:
            fill_top(columns, begin, walk.count, walk.base)
        columns.count = walk.count
        pos[0] = walk.pos
        return status

    def _check_wrapper(self, int64_t pos):
        """None, or what is wrong with the CRC of the compressed entry at ``pos``."""
        return check_crc(self._data + pos)

    cdef object _open_wrapper(self, int64_t pos):
        """Takes the messages inside the wrapper at ``pos``: None when all of it is good, else the reason.

        What was good before the bad place stays in the columns.
        """
        cdef Columns columns = self.columns
        cdef Py_ssize_t begin
        self._leave_plain()
        begin = columns.count
        self._budget = self._max_inflated
        self._index = 0
        self._wrapper_start = self._base + pos
        stack = []
        failure = self._push(stack, self._data + pos, None)
        if failure is None:
            failure = self._walk_inside(stack)
        if failure is None and columns.count > begin:
            as_int64(columns.next_offsets)[columns.count - 1] = (
                self._wrapper_start + 4 + load_int32(self._data + pos))
        return failure

    cdef object _walk_inside(self, list stack):
        cdef Frame frame
        cdef int status
        while stack:
            frame = stack[len(stack) - 1]
            status = self._walk_frame(frame)
            if status == K07_END:
                stack.pop()
            elif status == K07_FULL:
                self._make_room(1)
            elif status == K07_WRAPPER:
                failure = check_crc(frame.data + frame.pos)
                if failure is None:
                    failure = self._push(stack, frame.data + frame.pos, frame)
                if failure is not None:
                    return f"inside its wrapper at byte {frame.pos} (depth {len(stack)}): {failure}"
            else:
                failure = self._damage(status, frame.data, frame.pos, frame.length)
                return f"inside its wrapper at byte {frame.pos} (depth {len(stack)}): {failure}"
        return None

    cdef object _push(self, list stack, const uint8_t *entry, Frame frame):
        """Inflates the wrapper at ``entry`` (in ``frame``, or in the set itself) onto the stack: None, or why not."""
        cdef const uint8_t *payload = payload_of(entry)
        cdef Py_ssize_t size = load_int32(entry) + 4 - (payload - entry)
        cdef Py_ssize_t start
        if len(stack) == NESTING:
            return f"wrappers are nested more than {NESTING} deep"
        if frame is None:
            start = payload - self._data
            stored = self._view[start:start + size]
        else:
            start = payload - frame.data
            stored = frame.view[start:start + size]
        try:
            view = inflate(entry[5] & 3, stored, self._budget)
        except InflateError as error:
            return str(error)
        if frame is not None:
            frame.pos += 4 + <int64_t> load_int32(entry)
        self._budget -= len(view)
        self.columns.views.append(view)
        stack.append(frame_over(view, <int32_t> len(self.columns.views) - 1))
        return None

    cdef int _walk_frame(self, Frame frame) except -1:
        """Walks plain entries of a set inside a wrapper into the columns; the status that stopped it."""
        cdef Columns columns = self.columns
        cdef k07_walk walk
        cdef int status
        cdef int64_t begin = columns.count
        walk.data = frame.data
        walk.length = frame.length
        walk.pos = frame.pos
        walk.base = 0
        walk.offsets = as_int64(columns.offsets)
        walk.lengths = as_int32(columns.lengths)
        walk.count = begin
        walk.capacity = self._capacity
        if frame.length - frame.pos < NOGIL_BYTES:
            status = walk_plain(&walk)
        else:
            with nogil:
                status = walk_plain(&walk)
        fill_inside(columns, begin, walk.count, frame, self._wrapper_start, self._index)
        self._index += <int32_t> (walk.count - begin)
        columns.count = walk.count
        frame.pos = walk.pos
        return status

    cdef int _take_stored(self, int64_t pos) except -1:
        """Takes the wrapper at ``pos`` as a message of its own, for a shallow scan."""
        cdef Columns columns = self.columns
        cdef int32_t size = load_int32(self._data + pos)
        if columns.count == self._capacity:
            self._make_room(1)
        as_int64(columns.offsets)[columns.count] = self._base + pos
        as_int32(columns.lengths)[columns.count] = size - 6
        columns.count += 1
        return 0

    cdef int _make_room(self, int64_t more) except -1:
        cdef Columns columns = self.columns
        self._capacity = max(self._capacity * 2, columns.count + more)
        columns.offsets.resize((self._capacity + 1) * sizeof(int64_t))
        columns.lengths.resize(self._capacity * sizeof(int32_t))
        if columns.payloads is not None:
            columns.next_offsets.resize(self._capacity * sizeof(int64_t))
            columns.indexes.resize(self._capacity * sizeof(int32_t))
            columns.payloads.resize(self._capacity * sizeof(void *))
            columns.regions.resize(self._capacity * sizeof(int32_t))
        return 0

    def _give_back(self):
        """Gives back the room that a wrong first guess took, when it is worth the call."""
        cdef Columns columns = self.columns
        if self._capacity - columns.count > columns.count + 4096:
            self._capacity = columns.count
            self._make_exact()

    def _make_exact(self):
        cdef Columns columns = self.columns
        columns.offsets.resize((columns.count + 1) * sizeof(int64_t))
        columns.lengths.resize(columns.count * sizeof(int32_t))
        if columns.payloads is not None:
            columns.next_offsets.resize(columns.count * sizeof(int64_t))
            columns.indexes.resize(columns.count * sizeof(int32_t))
            columns.payloads.resize(columns.count * sizeof(void *))
            columns.regions.resize(columns.count * sizeof(int32_t))

    cdef int _leave_plain(self) except -1:
        """Before the first wrapper: gives every column a block of its own."""
        cdef Columns columns = self.columns
        if columns.payloads is not None:
            return 0
        columns.next_offsets = Block.allocate(self._capacity * sizeof(int64_t))
        columns.indexes = Block.allocate(self._capacity * sizeof(int32_t))
        columns.regions = Block.allocate(self._capacity * sizeof(int32_t))
        columns.payloads = Block.allocate(self._capacity * sizeof(void *))
        fill_top(columns, 0, columns.count, self._base)
        return 0

    cdef object _damage(self, int status, const uint8_t *data, int64_t pos, int64_t length):
        """What is wrong with the entry at ``pos`` of ``data``, in words."""
        cdef const uint8_t *entry = data + pos
        cdef int64_t left = length - pos
        if status == K07_BAD_SIZE:
            return f"its size field is {load_int32(entry)}, below the size of a header"
        if status == K07_BAD_MAGIC:
            return f"its magic byte is {entry[4]}, where 0.7 has 0 or 1"
        if status == K07_BAD_CODEC:
            return f"its attributes byte {entry[5]:#04x} names codec 3, which 0.7 does not have"
        if status == K07_BAD_CRC:
            return crc_reason(entry)
        if left < 4:
            return f"it is cut: {left} bytes of a size field, then nothing follows"
        return f"it is cut: its size field is {load_int32(entry)}, and {left - 4} bytes follow"

    cdef object _next_believed(self, int64_t pos):
        """Where the bad entry at ``pos`` ends, if a good entry or the log's end is there; else None."""
        cdef int64_t end, size
        if self._length - pos < 4:
            return None
        size = load_int32(self._data + pos)
        end = pos + 4 + size
        if end > self._length:
            return None
        if end == self._length:
            return end if self._final else None
        if self._length - end < 4:
            return None
        size = 4 + <int64_t> load_int32(self._data + end)
        if size < 9 or size > self._length - end:
            return None
        follower = Scan(self._view[end:end + size], 0, final=False, shallow=self._shallow,
                        max_inflated_bytes=self._max_inflated)
        return end if follower.valid_bytes == size else None


cdef inline const uint8_t *payload_of(const uint8_t *entry) noexcept nogil:
    """Behind size, magic, attributes (which magic 0 lacks) and CRC."""
    return entry + 9 + entry[4]


cdef object check_crc(const uint8_t *entry):
    """None, or what is wrong with the CRC of a whole entry."""
    cdef const uint8_t *payload = payload_of(entry)
    cdef size_t length = load_int32(entry) + 4 - (payload - entry)
    cdef uint32_t crc
    if length < NOGIL_BYTES:
        crc = crc32_of(0, payload, length)
    else:
        with nogil:
            crc = crc32_of(0, payload, length)
    return None if crc == load_uint32(payload - 4) else crc_reason(entry)


cdef object crc_reason(const uint8_t *entry):
    cdef const uint8_t *payload = payload_of(entry)
    cdef size_t length = load_int32(entry) + 4 - (payload - entry)
    return (f"its CRC field is {load_uint32(payload - 4):#010x}, "
            f"its payload of {length} bytes has {crc32_of(0, payload, length):#010x}")


cdef void fill_top(Columns columns, int64_t begin, int64_t end, int64_t base) noexcept nogil:
    """The columns beyond offsets and lengths, for plain entries of the set itself."""
    cdef int64_t *offsets = as_int64(columns.offsets)
    cdef int64_t *next_offsets = as_int64(columns.next_offsets)
    cdef int32_t *indexes = as_int32(columns.indexes)
    cdef int32_t *regions = as_int32(columns.regions)
    cdef const uint8_t **payloads = <const uint8_t **> columns.payloads.data
    cdef const uint8_t *entry
    cdef int64_t i
    for i in range(begin, end):
        entry = columns.data + (offsets[i] - base)
        payloads[i] = payload_of(entry)
        next_offsets[i] = offsets[i] + 4 + load_int32(entry)
        indexes[i] = 0
        regions[i] = entry[4]


cdef void fill_inside(Columns columns, int64_t begin, int64_t end, Frame frame,
                      int64_t wrapper, int32_t index) noexcept nogil:
    """The columns beyond lengths, for entries of a set inside a wrapper; the walk left positions in ``offsets``."""
    cdef int64_t *offsets = as_int64(columns.offsets)
    cdef int64_t *next_offsets = as_int64(columns.next_offsets)
    cdef int32_t *indexes = as_int32(columns.indexes)
    cdef int32_t *regions = as_int32(columns.regions)
    cdef const uint8_t **payloads = <const uint8_t **> columns.payloads.data
    cdef const uint8_t *entry
    cdef int64_t i
    for i in range(begin, end):
        entry = frame.data + offsets[i]
        payloads[i] = payload_of(entry)
        offsets[i] = wrapper
        next_offsets[i] = wrapper
        indexes[i] = index + <int32_t> (i - begin)
        regions[i] = frame.region * 2 + entry[4]
