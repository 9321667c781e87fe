"""Columns to Arrow: the C data interface in PyCapsules, without pyarrow.

Structures and ownership: "The Arrow C data interface" and "The Arrow PyCapsule Interface" of the Arrow format
documents. Each exported array holds one Python object, its owners; ``release`` lets go of it, from whatever thread.

``value`` is ``binary`` (int32 offsets, one gathered copy) or ``binary_view`` (16-byte views over the bytes where they
lie).
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strcmp

from kafka07c._memory cimport Block, address, as_int32, as_int64
from kafka07c._scan cimport Columns, separate_columns

cdef enum:
    NULLABLE = 2                # ARROW_FLAG_NULLABLE; nothing is null, but plain schemas in pyarrow say nullable too
    CHILDREN = 4


cdef extern from "values.h" nogil:
    enum:
        K07_STEP
        K07_VIEW_BYTES
        K07_WINDOW_BYTES
    ctypedef struct k07_plain:
        const uint8_t *data
        int64_t length
        int64_t base
        const int64_t *offsets
        const int32_t *lengths
        int64_t count
    void k07_gather(const k07_plain *columns, int32_t *offsets, uint8_t *out)
    void k07_put_view(uint8_t *slot, const uint8_t *payload, int32_t length, int64_t first, int64_t at)
    void k07_put_views(const k07_plain *columns, uint8_t *slot)


cdef const char *STRUCT = "+s"
cdef const char *BINARY = "z"
cdef const char *BINARY_VIEW = "vz"
cdef const char *EMPTY = ""
cdef const char **NAMES = ["offset", "index", "next_offset", "value"]
cdef const char **FORMATS = ["l", "i", "l", "z"]


def gather(sets):
    """Several message sets as one Arrow struct array, an object with ``__arrow_c_array__`` and ``len()``.

    offset int64, index int32, next_offset int64, value binary; for ``pyarrow.record_batch(gather([...]))``. The values
    are copied once, here; the columns of a single set are not. Raises the first error that a set carries, and OverflowError
    when the values come to 2 GiB and more.
    """
    cdef list parts = []
    for each in sets:
        each._raise_error()
        parts.append(each._columns)
    return Export(parts[0] if len(parts) == 1 else joined(parts), False)


def export(Columns columns not None):
    """``columns`` as an Arrow struct array whose ``value`` is ``binary_view`` over the bytes where they lie."""
    return Export(columns, True)


@cython.final
cdef class Export:
    """Columns, to be taken over the Arrow PyCapsule interface as often as wanted."""

    cdef Columns _columns
    cdef bint _as_views
    cdef Block _value_offsets
    cdef Block _value_bytes

    def __init__(self, Columns columns, bint as_views):
        self._columns = columns
        self._as_views = as_views
        if not as_views:
            self._gather_values()

    def __len__(self):
        return self._columns.count

    def __arrow_c_schema__(self):
        return schema_capsule(self._as_views)

    def __arrow_c_array__(self, requested_schema=None):
        cdef bint as_views = self._as_views
        if requested_schema is not None:
            as_views = wants_views(requested_schema)
            if not as_views:
                with cython.critical_section(self):  # of threads that share it, one gathers
                    if self._value_bytes is None:
                        self._gather_values()
        return schema_capsule(as_views), self._array_capsule(as_views)

    cdef int _gather_values(self) except -1:
        cdef Columns columns = self._columns
        cdef Py_ssize_t count = columns.count
        cdef int64_t total = sum_of(as_int32(columns.lengths), count)
        if total > INT32_MAX:
            raise OverflowError(
                f"{count} values of {total} bytes are too much for one binary array (2 GiB): "
                "take smaller sets, or binary_view()")
        self._value_offsets = Block.allocate((count + 1) * sizeof(int32_t))
        self._value_bytes = Block.allocate(total + K07_STEP)
        cdef k07_plain plain
        if columns.payloads is None:
            plain = plain_columns(columns)
            with nogil:
                k07_gather(&plain, as_int32(self._value_offsets), self._value_bytes.data)
        else:
            with nogil:
                copy_values(columns, as_int32(self._value_offsets), self._value_bytes.data)
        return 0

    cdef object _array_capsule(self, bint as_views):
        cdef Columns columns = self._columns
        cdef Py_ssize_t count = columns.count
        cdef ArrowArray *array = new_array(count, 1, CHILDREN, self)
        capsule = PyCapsule_New(array, "arrow_array", drop_array)
        cdef Block indexes = columns.indexes or Block.zeros(count * sizeof(int32_t))
        array.children[0] = column_array(count, columns.offsets.data, columns.offsets)
        array.children[1] = column_array(count, indexes.data, indexes)
        if columns.next_offsets is None:
            array.children[2] = column_array(count, columns.offsets.data + sizeof(int64_t), columns.offsets)
        else:
            array.children[2] = column_array(count, columns.next_offsets.data, columns.next_offsets)
        array.children[3] = views_array(columns) if as_views else self._binary_array()
        return capsule

    cdef ArrowArray *_binary_array(self) except NULL:
        cdef ArrowArray *array = new_array(self._columns.count, 3, 0, (self._value_offsets, self._value_bytes))
        array.buffers[1] = self._value_offsets.data
        array.buffers[2] = self._value_bytes.data
        return array


cdef ArrowArray *column_array(Py_ssize_t count, const void *data, Block owner) except NULL:
    cdef ArrowArray *array = new_array(count, 2, 0, owner)
    array.buffers[1] = data
    return array


cdef ArrowArray *views_array(Columns columns) except NULL:
    """The views, and as many buffers as the memory behind them needs; the last buffer holds their sizes."""
    cdef Py_ssize_t count = columns.count, i
    cdef list views = columns.views
    cdef list first_window = []   # of each region
    cdef int64_t length, start, windows = 0, w
    for view in views:
        first_window.append(windows)
        windows += max(1, (len(view) + K07_WINDOW_BYTES - 1) // K07_WINDOW_BYTES)
    cdef Block slots = Block.allocate(count * K07_VIEW_BYTES)
    cdef Block sizes = Block.allocate(windows * sizeof(int64_t))
    cdef Block starts = Block.allocate(len(views) * sizeof(void *))
    cdef Block firsts = Block.allocate(len(views) * sizeof(int64_t))
    cdef ArrowArray *array = new_array(count, 3 + windows, 0, (views, slots, sizes))
    array.buffers[1] = slots.data
    array.buffers[2 + windows] = sizes.data
    for i in range(len(views)):
        view = views[i]
        (<const uint8_t **> starts.data)[i] = address(view)
        as_int64(firsts)[i] = first_window[i]
        length = len(view)
        w = first_window[i]
        start = 0
        while True:
            array.buffers[2 + w] = address(view) + start
            as_int64(sizes)[w] = min(length - start, <int64_t> INT32_MAX)
            w += 1
            start += K07_WINDOW_BYTES
            if start >= length:
                break
    cdef k07_plain plain
    if columns.payloads is None:
        plain = plain_columns(columns)
        with nogil:
            k07_put_views(&plain, slots.data)
    else:
        with nogil:
            fill_views(columns, slots.data, <const uint8_t **> starts.data, as_int64(firsts))
    return array


cdef k07_plain plain_columns(Columns columns):
    return k07_plain(columns.data, len(columns.views[0]), columns.base, as_int64(columns.offsets),
                     as_int32(columns.lengths), columns.count)


cdef void fill_views(Columns columns, uint8_t *slot, const uint8_t **starts, const int64_t *firsts) noexcept nogil:
    cdef const uint8_t **payloads = <const uint8_t **> columns.payloads.data
    cdef const int32_t *lengths = as_int32(columns.lengths)
    cdef const int32_t *regions = as_int32(columns.regions)
    cdef Py_ssize_t i, count = columns.count
    cdef int32_t region
    for i in range(count):
        region = regions[i] >> 1
        k07_put_view(slot, payloads[i], lengths[i], firsts[region], payloads[i] - starts[region])
        slot += K07_VIEW_BYTES


cdef int64_t sum_of(const int32_t *values, Py_ssize_t count) noexcept nogil:
    cdef int64_t total = 0
    cdef Py_ssize_t i
    for i in range(count):
        total += values[i]
    return total


cdef void copy_values(Columns columns, int32_t *offsets, uint8_t *out) noexcept nogil:
    cdef const uint8_t **payloads = <const uint8_t **> columns.payloads.data
    cdef const int32_t *lengths = as_int32(columns.lengths)
    cdef Py_ssize_t i, count = columns.count
    cdef int32_t filled = 0
    for i in range(count):
        offsets[i] = filled
        memcpy(out + filled, payloads[i], lengths[i])
        filled += lengths[i]
    offsets[count] = filled


cdef Columns joined(list parts):
    """The columns of several scans as one, over the memory of all of them."""
    cdef Columns part, out
    cdef Py_ssize_t filled = 0
    cdef int32_t region = 0
    for part in parts:
        filled += part.count
    out = separate_columns(filled)
    filled = 0
    for part in parts:
        with nogil:
            out.append(filled, part, 0, region)
        filled += part.count
        region += <int32_t> len(part.views)
        out.views.extend(part.views)
    return out


cdef ArrowArray *new_array(int64_t length, int64_t buffers, int64_t children, object owner) except NULL:
    """An array with room for its buffers and children, all NULL yet, that holds ``owner`` until it is released."""
    cdef ArrowArray *array = <ArrowArray *> calloc(1, sizeof(ArrowArray))
    if array is NULL:
        raise MemoryError("no memory for an Arrow array")
    array.buffers = <const void **> calloc(buffers, sizeof(void *))
    array.children = <ArrowArray **> calloc(max(children, 1), sizeof(void *))
    if array.buffers is NULL or array.children is NULL:
        free(array.buffers)
        free(array.children)
        free(array)
        raise MemoryError("no memory for an Arrow array")
    array.length = length
    array.n_buffers = buffers
    array.n_children = children
    array.private_data = <void *> owner
    Py_INCREF(owner)
    array.release = release_array
    return array


cdef void release_array(ArrowArray *array) noexcept with gil:
    """The consumer is done; children that it moved out have no ``release`` any more."""
    cdef int64_t i
    cdef PyObject *owner = <PyObject *> array.private_data
    array.release = NULL
    for i in range(array.n_children):
        if array.children[i] is not NULL:
            if array.children[i].release is not NULL:
                array.children[i].release(array.children[i])
            free(array.children[i])
    free(array.buffers)
    free(array.children)
    Py_DECREF(<object> owner)


cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    free(array)


cdef object schema_capsule(bint as_views):
    cdef ArrowSchema *schema = new_schema(STRUCT, EMPTY, CHILDREN)
    capsule = PyCapsule_New(schema, "arrow_schema", drop_schema)
    cdef int i
    for i in range(CHILDREN):
        schema.children[i] = new_schema(BINARY_VIEW if as_views and i == CHILDREN - 1 else FORMATS[i], NAMES[i], 0)
    schema.flags = 0
    return capsule


cdef ArrowSchema *new_schema(const char *format, const char *name, int64_t children) except NULL:
    """A schema whose texts are constants of this module."""
    cdef ArrowSchema *schema = <ArrowSchema *> calloc(1, sizeof(ArrowSchema))
    if schema is NULL:
        raise MemoryError("no memory for an Arrow schema")
    schema.children = <ArrowSchema **> calloc(max(children, 1), sizeof(void *))
    if schema.children is NULL:
        free(schema)
        raise MemoryError("no memory for an Arrow schema")
    schema.format = format
    schema.name = name
    schema.flags = NULLABLE
    schema.n_children = children
    schema.release = release_schema
    return schema


cdef void release_schema(ArrowSchema *schema) noexcept:
    cdef int64_t i
    schema.release = NULL
    for i in range(schema.n_children):
        if schema.children[i] is not NULL:
            if schema.children[i].release is not NULL:
                schema.children[i].release(schema.children[i])
            free(schema.children[i])
    free(schema.children)


cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:
        schema.release(schema)
    free(schema)


cdef bint wants_views(object requested) except -1:
    """Does the schema that a consumer asks for have ``value`` as binary_view? What else it asks for is its to cast."""
    if not PyCapsule_IsValid(requested, "arrow_schema"):
        raise TypeError("requested_schema is no arrow_schema capsule")
    cdef ArrowSchema *schema = <ArrowSchema *> PyCapsule_GetPointer(requested, "arrow_schema")
    cdef int64_t i
    for i in range(schema.n_children):
        if strcmp(schema.children[i].name, NAMES[CHILDREN - 1]) == 0:
            return strcmp(schema.children[i].format, BINARY_VIEW) == 0
    return False
