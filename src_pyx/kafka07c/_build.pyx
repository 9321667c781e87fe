"""Message sets out of payloads: from Python objects, from one buffer with offsets, or from Arrow columns.

Layout of an entry: see _scan. With a codec the entries are first put together plain, then compressed into one wrapper
whose attributes are the codec's number (kafka.message.CompressionUtils of 0.7.2).
"""

import numpy

from kafka07c._compress import codec_of, deflate

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset, strcmp, strncmp

from kafka07c._arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema
from kafka07c._crc32 cimport encode, k07_payload
from kafka07c._memory cimport address, read_only_view

cdef extern from "Python.h":
    PyObject **PySequence_Fast_ITEMS(object sequence)
    const char *bytes_data "PyBytes_AS_STRING"(PyObject *) nogil
    Py_ssize_t bytes_size "PyBytes_GET_SIZE"(PyObject *) nogil

cdef const char *VALUE = "value"


def build_message_set(payloads, codec="none", *, int magic=1, offsets=None):
    """A message set with one message for each payload, as bytes ready for a produce request or a segment file.

    ``payloads`` is one of

    - an iterable of bytes-like objects;
    - an Arrow array or chunked array of binary, large_binary, binary_view, fixed_size_binary or the string types
      (whatever has ``__arrow_c_array__`` or ``__arrow_c_stream__``): no Python object per message;
    - an Arrow struct (record batch, table) with such a column named ``value``: a MessageSet, its ``binary_view()``;
    - a two-dimensional buffer of bytes (numpy uint8), one row a payload;
    - with ``offsets`` (n + 1 integers, numpy or Arrow-like order: payload i is ``payloads[offsets[i]:offsets[i + 1]]``) one
      buffer that holds all payloads.

    ``codec``: none, gzip or snappy (name, number or Codec); not none puts all messages into one wrapper. ``magic``: 1, or 0
    for the oldest form, which has no attributes and so no codec. No payloads give ``b""``.
    Nobody may write to the payloads meanwhile: copy and CRC could come to differ.

    Raises TypeError for a payload that is no bytes-like object, ValueError for nulls, for an unknown codec or magic, for
    offsets that go backwards or out of the buffer, and for a message of 2 GiB and more.
    """
    codec = codec_of(codec)
    if magic not in (0, 1):
        raise ValueError(f"magic is {magic}; 0.7 has 0 and 1")
    if codec and magic == 0:
        raise ValueError("magic 0 has no attributes byte and so no codec: use magic 1 or codec none")
    plain = _build_plain(payloads, magic, offsets)
    return wrap_message_set(plain, codec) if codec else plain


def wrap_message_set(plain, codec):
    """One stored entry, as bytes, that holds the message set ``plain`` compressed: a wrapper, as 0.7's producer sends it.

    ``plain``: any C-contiguous buffer of whole entries (what :func:`build_message_set` gives, or a run of them cut at
    entry boundaries); it is not looked into, and only read. ``codec``: gzip or snappy (name, number or Codec); none
    gives the bytes as they are, for there is no wrapper without a codec. An empty set gives ``b""``.

    Raises TypeError for what is no buffer, BufferError for one that is not contiguous, ValueError for an unknown codec
    and for a wrapper of 2 GiB and more. Source: kafka.message.CompressionUtils of 0.7.2.
    """
    codec = codec_of(codec)
    view = read_only_view(plain)
    if not codec or not len(view):
        return bytes(view) if type(plain) is not bytes else plain
    return _wrap(deflate(codec, view), codec)


def _build_plain(payloads, int magic, offsets):
    if offsets is not None:
        return _from_offsets(payloads, offsets, magic)
    if hasattr(payloads, "__arrow_c_array__"):
        schema, array = payloads.__arrow_c_array__()
        return _from_arrow_array(schema, array, magic)
    if hasattr(payloads, "__arrow_c_stream__"):
        return _from_arrow_stream(payloads.__arrow_c_stream__(), magic)
    if isinstance(payloads, (bytes, bytearray, str)):
        raise TypeError(f"payloads is one {type(payloads).__name__}: pass a list of bytes")
    if isinstance(payloads, numpy.ndarray) and payloads.dtype == numpy.uint8 and payloads.ndim == 2:
        width = payloads.shape[1]
        return _from_offsets(numpy.ascontiguousarray(payloads), numpy.arange(len(payloads) + 1) * width, magic)
    if isinstance(payloads, numpy.ndarray) and payloads.ndim == 1 and payloads.dtype.kind not in "SOUV":
        raise TypeError(f"payloads is one array of {payloads.dtype}: pass offsets with it, or an array with a row each")
    return _from_objects(list(payloads), magic)  # a copy: a payload's own code, asked for its buffer, may change it


cdef enum:
    CHUNK = 64            # payloads whose places are collected before they are encoded; kernels take four at once
    NOGIL_BYTES = 16384   # fewer are written with the GIL held: to let it go and take it back costs as much
    MOST_BYTES = 0x7FFFFFFF - 6


cdef inline int64_t entry_bytes(int64_t length, int magic) noexcept nogil:
    return length + 9 + magic


cdef int check_length(int64_t length, object i) except -1:
    if length > MOST_BYTES:
        raise ValueError(f"payload {i} has {length} bytes, more than the size field of a message can say")
    return 0


cdef bytes _wrap(bytes payload, int codec):
    check_length(len(payload), "of the wrapper")
    cdef bytes out = PyBytes_FromStringAndSize(NULL, entry_bytes(len(payload), 1))
    cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(out)
    cdef uint8_t *end = at + len(out)
    cdef k07_payload one = k07_payload(<const uint8_t *> PyBytes_AS_STRING(payload), len(payload))
    with nogil:
        encode(at, end, &one, 1, 1, codec)
    return out


cdef bytes _from_objects(list payloads, int magic):
    cdef Py_ssize_t i, count = len(payloads)
    cdef int64_t total = 0, length
    cdef object payload
    cdef bint only_bytes = True
    for i in range(count):
        payload = payloads[i]
        if PyBytes_CheckExact(payload):
            length = PyBytes_GET_SIZE(payload)
        else:
            length = buffer_size(payload, i)
            only_bytes = False
        check_length(length, i)
        total += entry_bytes(length, magic)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(out)
    cdef PyObject **objects
    if not only_bytes:
        _put_buffers(payloads, at, at + total, magic)
        return out
    objects = PySequence_Fast_ITEMS(payloads)
    if total < NOGIL_BYTES:
        put_bytes(objects, count, at, at + total, magic)
    else:
        with nogil:
            put_bytes(objects, count, at, at + total, magic)
    return out


cdef void put_bytes(PyObject **objects, Py_ssize_t count, uint8_t *at, uint8_t *end, int magic) noexcept nogil:
    """Bytes objects that somebody holds, whose type and size were looked at: they do not change, so no GIL is needed."""
    cdef k07_payload chunk[CHUNK]
    cdef Py_ssize_t i = 0, k, filled
    while i < count:
        filled = min(count - i, <Py_ssize_t> CHUNK)
        for k in range(filled):
            chunk[k].data = <const uint8_t *> bytes_data(objects[i + k])
            chunk[k].length = bytes_size(objects[i + k])
        at = encode(at, end, chunk, filled, magic, 0)
        i += CHUNK


cdef int _put_buffers(list payloads, uint8_t *at, uint8_t *end, int magic) except -1:
    """Payloads of any kind: their sizes were asked for before, and may have changed since."""
    cdef Py_buffer view
    cdef k07_payload one
    cdef Py_ssize_t i
    for i in range(len(payloads)):
        PyObject_GetBuffer(payloads[i], &view, PyBUF_SIMPLE)
        try:
            if entry_bytes(view.len, magic) > end - at:
                raise BufferError(f"payload {i} changed its size meanwhile")
            one = k07_payload(<const uint8_t *> view.buf, view.len)
            at = encode(at, end, &one, 1, magic, 0)
        finally:
            PyBuffer_Release(&view)
    if at != end:
        raise BufferError("a payload changed its size meanwhile")
    return 0


cdef int64_t buffer_size(object payload, Py_ssize_t i) except -1:
    cdef Py_buffer view
    if payload is None:
        raise ValueError(f"payload {i} is None; 0.7 has no null message: leave it out, or pass b''")
    if isinstance(payload, str):  # numpy's kind has a buffer, of UCS-4
        raise TypeError(f"payload {i} is {type(payload).__name__}, not bytes-like: encode it")
    try:
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    except TypeError:
        raise TypeError(f"payload {i} is {type(payload).__name__}, not bytes-like") from None
    cdef int64_t length = view.len
    PyBuffer_Release(&view)
    return length


def _from_offsets(data, offsets, int magic):
    cdef object view = read_only_view(data)
    cdef object places = numpy.ascontiguousarray(offsets)
    if places.dtype.kind not in "iu" or places.ndim != 1 or len(places) < 1:
        raise ValueError("offsets must be n + 1 integers in one dimension, with at least the first")
    places = places.astype(numpy.int64)  # a copy: what was checked must not change while the GIL is away
    cdef object kept = read_only_view(places)
    cdef const int64_t *at = <const int64_t *> address(kept)
    cdef Py_ssize_t count = len(places) - 1
    cdef int64_t size = len(view)
    cdef Py_ssize_t bad = first_bad_place(at, count, size)
    if bad <= count:
        if 0 <= (at[bad - 1] if bad else 0) <= at[bad] <= size:
            check_length(at[bad] - at[bad - 1], bad - 1)
        raise ValueError(
            f"offsets[{bad}] is {at[bad]}: they must not go backwards, nor out of the buffer's {size} bytes")
    cdef int64_t total = at[count] - at[0] + count * entry_bytes(0, magic)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(out)
    cdef const uint8_t *source = address(view)
    with nogil:
        put_places(source, at, count, to, to + total, magic)
    return out


cdef Py_ssize_t first_bad_place(const int64_t *at, Py_ssize_t count, int64_t size) noexcept nogil:
    """The first of count + 1 places that goes backwards, out of ``size``, or too far for one message; or count + 1."""
    cdef Py_ssize_t i
    if not 0 <= at[0] <= size:
        return 0
    for i in range(1, count + 1):
        if at[i] < at[i - 1] or at[i] > size or at[i] - at[i - 1] > MOST_BYTES:
            return i
    return count + 1


cdef void put_places(const uint8_t *source, const int64_t *at, Py_ssize_t count, uint8_t *out, uint8_t *end,
                     int magic) noexcept nogil:
    cdef k07_payload chunk[CHUNK]
    cdef Py_ssize_t i = 0, k, filled
    while i < count:
        filled = min(count - i, <Py_ssize_t> CHUNK)
        for k in range(filled):
            chunk[k].data = source + at[i + k]
            chunk[k].length = at[i + k + 1] - at[i + k]
        out = encode(out, end, chunk, filled, magic, 0)
        i += CHUNK


# Arrow columns: "Arrow columnar format", variable-size binary and view layouts

cdef enum Layout:
    OFFSETS_32
    OFFSETS_64
    VIEWS
    FIXED


cdef struct Column:
    ArrowSchema *schema
    ArrowArray *array
    int64_t first               # the row of the array, before its own offset, that payload 0 is
    int64_t count


cdef int find_column(ArrowSchema *schema, ArrowArray *array, Column *found) except -1:
    """The column with the payloads: the array itself, or the child named value of a struct."""
    cdef int64_t i
    found[0] = Column(schema, array, 0, array.length)
    if strcmp(schema.format, "+s") != 0:
        return 0
    refuse_nulls(array, 0, array.length)
    for i in range(schema.n_children):
        if schema.children[i].name is not NULL and strcmp(schema.children[i].name, VALUE) == 0:
            found[0] = Column(schema.children[i], array.children[i], array.offset, array.length)
            return 0
    raise TypeError("the Arrow struct has no column named value: pass the column with the payloads itself")


cdef Layout layout_of(ArrowSchema *schema, int64_t *width) except *:
    cdef const char *format = schema.format
    if strcmp(format, "z") == 0 or strcmp(format, "u") == 0:
        return OFFSETS_32
    if strcmp(format, "Z") == 0 or strcmp(format, "U") == 0:
        return OFFSETS_64
    if strcmp(format, "vz") == 0 or strcmp(format, "vu") == 0:
        return VIEWS
    if strncmp(format, "w:", 2) == 0:
        width[0] = int((<bytes> format)[2:])
        return FIXED
    raise TypeError(f"the Arrow column has format {(<bytes> format).decode()!r}; "
                    "payloads are binary, large_binary, binary_view, fixed_size_binary or strings")


cdef void take_values(ArrowArray *array, Layout layout, int64_t width, int64_t first, Py_ssize_t count,
                      k07_payload *out) noexcept nogil:
    """Where the values from ``first`` on lie, and their lengths, as the array says them."""
    cdef const int32_t *offsets = <const int32_t *> array.buffers[1]
    cdef const int64_t *long_offsets = <const int64_t *> array.buffers[1]
    cdef const uint8_t *rows = <const uint8_t *> array.buffers[1]
    cdef const uint8_t *values
    cdef const int32_t *view
    cdef Py_ssize_t k
    first += array.offset
    if layout == FIXED:
        for k in range(count):
            out[k].data = rows + (first + k) * width
            out[k].length = width
    elif layout == VIEWS:
        for k in range(count):
            view = offsets + (first + k) * 4
            out[k].length = view[0]
            out[k].data = <const uint8_t *> (view + 1)
            if view[0] > 12:
                out[k].data = <const uint8_t *> array.buffers[2 + view[2]] + view[3]
    elif layout == OFFSETS_32:
        values = <const uint8_t *> array.buffers[2]
        for k in range(count):
            out[k].data = values + offsets[first + k]
            out[k].length = <int64_t> offsets[first + k + 1] - offsets[first + k]
    else:
        values = <const uint8_t *> array.buffers[2]
        for k in range(count):
            out[k].data = values + long_offsets[first + k]
            out[k].length = long_offsets[first + k + 1] - long_offsets[first + k]


cdef bytes _from_arrow_array(object schema_capsule, object array_capsule, int magic):
    cdef ArrowSchema *schema = <ArrowSchema *> PyCapsule_GetPointer(schema_capsule, "arrow_schema")
    cdef ArrowArray *array = <ArrowArray *> PyCapsule_GetPointer(array_capsule, "arrow_array")
    return entries_of(schema, array, magic)


cdef bytes _from_arrow_stream(object capsule, int magic):
    cdef ArrowArrayStream *stream = <ArrowArrayStream *> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef list parts = []
    memset(&schema, 0, sizeof(schema))
    if stream.get_schema(stream, &schema):
        raise ValueError(f"the Arrow stream has no schema: {stream_error(stream)}")
    try:
        while True:
            memset(&array, 0, sizeof(array))
            if stream.get_next(stream, &array):
                raise ValueError(f"the Arrow stream ended with an error: {stream_error(stream)}")
            if array.release is NULL:
                return b"".join(parts)
            try:
                parts.append(entries_of(&schema, &array, magic))
            finally:
                array.release(&array)
    finally:
        if schema.release is not NULL:
            schema.release(&schema)


cdef str stream_error(ArrowArrayStream *stream):
    cdef const char *text = stream.get_last_error(stream)
    return "no reason given" if text is NULL else (<bytes> text).decode(errors="replace")


cdef bytes entries_of(ArrowSchema *schema, ArrowArray *whole, int magic):
    cdef int64_t width = 0
    cdef Column column
    find_column(schema, whole, &column)
    cdef Layout layout = layout_of(column.schema, &width)
    refuse_nulls(column.array, column.first, column.count)
    cdef int64_t total = count_bytes(&column, layout, width, magic)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(out)
    with nogil:
        put_values(&column, layout, width, at, at + total, magic)
    return out


cdef int64_t count_bytes(Column *column, Layout layout, int64_t width, int magic) except -1:
    """The bytes that the entries will take."""
    cdef k07_payload chunk[CHUNK]
    cdef int64_t i = 0, total = 0
    cdef Py_ssize_t k, filled
    while i < column.count:
        filled = min(column.count - i, <int64_t> CHUNK)
        take_values(column.array, layout, width, column.first + i, filled, chunk)
        for k in range(filled):
            if <uint64_t> chunk[k].length > <uint64_t> MOST_BYTES:
                check_length(chunk[k].length, i + k)
                raise ValueError(f"payload {i + k} has {chunk[k].length} bytes: the Arrow column is damaged")
            total += entry_bytes(chunk[k].length, magic)
        i += CHUNK
    return total


cdef void put_values(Column *column, Layout layout, int64_t width, uint8_t *at, uint8_t *end, int magic) noexcept nogil:
    cdef k07_payload chunk[CHUNK]
    cdef int64_t i = 0
    cdef Py_ssize_t filled
    while i < column.count:
        filled = min(column.count - i, <int64_t> CHUNK)
        take_values(column.array, layout, width, column.first + i, filled, chunk)
        at = encode(at, end, chunk, filled, magic, 0)
        i += CHUNK


cdef int refuse_nulls(ArrowArray *array, int64_t first, int64_t count) except -1:
    cdef const uint8_t *valid = <const uint8_t *> array.buffers[0]
    cdef int64_t i, bit
    if array.null_count == 0 or valid is NULL:
        return 0
    for i in range(count):
        bit = i + first + array.offset
        if not valid[bit >> 3] >> (bit & 7) & 1:
            raise ValueError(f"payload {i} is null; 0.7 has no null message: drop nulls, or fill them")
    return 0
