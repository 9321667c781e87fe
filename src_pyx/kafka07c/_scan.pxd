from libc.stdint cimport int32_t, int64_t, uint8_t

from kafka07c._memory cimport Block


cdef class Columns:
    """What a scan found, one element a message.

    Plain (no wrapper opened): ``offsets`` has count + 1 elements, the next offsets are the same block one element on,
    and a payload ends where its entry does. Else every column has a block of its own. Where a payload lies is known
    from here alone: bytes that somebody changes after the pass cannot lead a read outside them.
    """

    cdef list views                # read-only memoryviews that hold the bytes; views[0] is what was scanned
    cdef const uint8_t *data       # of views[0]
    cdef int64_t base              # offset of data[0]
    cdef Py_ssize_t count
    cdef Block offsets             # int64
    cdef Block lengths             # int32, payload bytes
    cdef Block next_offsets        # int64; None when plain
    cdef Block indexes             # int32; None when plain, where each is 0
    cdef Block payloads            # addresses; None when plain
    cdef Block regions             # int32, place in views * 2 + magic; None when plain

    cdef const uint8_t *payload(self, Py_ssize_t i) noexcept nogil
    cdef int32_t magic(self, Py_ssize_t i) noexcept nogil
    cdef int64_t offset(self, Py_ssize_t i) noexcept nogil
    cdef int64_t next_offset(self, Py_ssize_t i) noexcept nogil
    cdef int32_t index(self, Py_ssize_t i) noexcept nogil
    cdef int32_t length(self, Py_ssize_t i) noexcept nogil
    cdef int32_t region(self, Py_ssize_t i) noexcept nogil
    cdef void append(self, Py_ssize_t filled, Columns part, Py_ssize_t begin, int32_t first_region) noexcept nogil


cdef Columns separate_columns(Py_ssize_t count)


cdef struct Wrapper:
    const uint8_t *payload
    int64_t length                  # of the payload
    int64_t entry_bytes             # of all of it
    int codec


cdef class Frame:
    """A message set, the one given or one inside a wrapper, and how far it has been walked."""

    cdef object view
    cdef const uint8_t *data
    cdef int64_t length
    cdef int64_t pos
    cdef int64_t base               # offset of data[0]; 0 inside a wrapper
    cdef int32_t region             # place of view in the columns' views; 0 is the set that was given


cdef class Scan:
    cdef readonly Columns columns
    cdef readonly int64_t valid_bytes
    cdef readonly object error      # None, or a Damage
    cdef bint _final
    cdef bint _shallow
    cdef int64_t _max_inflated
    cdef int64_t _capacity
    cdef int64_t _budget            # bytes that the open wrapper may still inflate to
    cdef Py_ssize_t _inner_wrappers # wrappers opened inside it
    cdef int32_t _index             # the next message's place in the open wrapper
    cdef int64_t _wrapper_start     # offset of the open wrapper

    cdef int _run(self, Frame top) except -1
    cdef int _walk(self, Frame frame) except -1
    cdef int _count_inside(self, int64_t begin, int64_t end) except -1
    cdef object _take_wrapper(self, Frame top)
    cdef object _walk_inside(self, list stack)
    cdef object _open(self, list stack, Frame frame, Wrapper *wrapper)
    cdef int _take_stored(self, Frame top, Wrapper *wrapper) except -1
    cdef int _resize(self, int64_t capacity) except -1
    cdef int _leave_plain(self, Frame top) except -1
    cdef object _next_believed(self, Frame top)
