"""MessageSet and Message: read-only views over the bytes that were given, and nothing per message until asked for."""

import copy
import operator

import numpy

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.number cimport PyNumber_AsSsize_t
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kafka07c._arrow import export, gather
from kafka07c._compress import Codec
from kafka07c.config import MAX_INFLATED_BYTES
from kafka07c.errors import CorruptMessageError

from kafka07c._memory cimport Block, address, read_only_view
from kafka07c._scan cimport Columns, Scan, separate_columns
from kafka07c._wire cimport load_uint32

cdef tuple CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY)


@cython.final
cdef class MessageSet:
    """The messages in a run of log bytes, walked and checked in one pass; a sequence of :class:`Message`.

    ``data``: any C-contiguous buffer (bytes, bytearray, memoryview, mmap, numpy array): a fetch answer, or part of a
    segment file, that begins at the start of an entry and may be cut anywhere. Nothing is copied: the set and every view
    taken from it hold ``data``, and a bytearray or mmap cannot be resized or closed meanwhile. Bytes that change under
    the set are the caller's risk; values then change, and nothing is read outside the buffer as long as sizes stay.
    Compressed entries (wrappers) are inflated here and now, into memory that the set owns.

    ``base_offset``: the log offset of the first byte. ``topic``, ``broker``, ``partition`` go to every message and error.
    ``final``: nothing follows ``data`` in the log, so a cut last entry is corruption and not the usual cut of a fetch.
    ``max_inflated_bytes``: the most that one stored entry may inflate to, all levels of nesting together.
    ``shallow``: wrappers stay closed; the stored entries are the messages, compressed payloads as they are.

    Errors do not stop the constructor (which raises only for arguments: TypeError, BufferError, ValueError, and
    MemoryError). A set that ends in damage has the good messages before it, and ``error``. Iterating gives those messages
    and then raises the error; ``len()`` and indexing cover them; columns, ``payloads()`` and Arrow raise at once, so that
    nobody takes a part for the whole: ``good()`` is the set without the error.

    What 0.7.2's own iterator does otherwise: it loses the good message before a bad inner one (it looks one ahead),
    fetches for ever on a length too large at the log's end (here: ``final``), and throws InvalidMessageSize when the very
    first entry is cut (here: no messages, ``valid_bytes`` 0).

    Safe to read from several threads at once. The pass runs without the GIL.
    """

    def __init__(self, data, base_offset=0, *, topic=None, broker=None, partition=None, bint final=False,
                 max_inflated_bytes=MAX_INFLATED_BYTES, bint shallow=False):
        cdef Scan scan
        base_offset = integer("base_offset", base_offset)
        max_inflated_bytes = integer("max_inflated_bytes", max_inflated_bytes)
        if base_offset < 0:
            raise ValueError(f"base_offset is {base_offset}; offsets begin at 0")
        if max_inflated_bytes < 0:
            raise ValueError(f"max_inflated_bytes is {max_inflated_bytes}; it cannot be negative")
        view = read_only_view(data)
        if base_offset > INT64_MAX - len(view):
            raise ValueError(f"base_offset is {base_offset}: the {len(view)} bytes would end past the largest offset")
        scan = Scan(view, base_offset, final=final, shallow=shallow,
                    max_inflated_bytes=min(max_inflated_bytes, INT64_MAX))
        self._columns = scan.columns
        self.valid_bytes = scan.valid_bytes
        self.base_offset = base_offset
        self.topic = topic
        self.broker = broker
        self.partition = partition
        if scan.error is not None:
            self.error = self._corruption(scan.error)

    def _corruption(self, damage):
        following = damage.next_position
        return CorruptMessageError(
            f"corrupt entry: {damage.reason}",
            topic=self.topic,
            broker=self.broker,
            partition=self.partition,
            offset=self.base_offset + damage.position,
            next_offset=None if following is None else self.base_offset + following,
        )

    # what it says of itself

    @property
    def next_offset(self):
        """Where to fetch next: the end of the last entry that is good through and through (an offset, int)."""
        return self.base_offset + self.valid_bytes

    @property
    def size_bytes(self):
        """How many bytes were given, cut tail and all."""
        return len(self._columns.views[0])

    @property
    def data(self):
        """The bytes that were given, as a read-only memoryview."""
        return self._columns.views[0][:]

    def __repr__(self):
        place = "" if self.topic is None else f" of {self.topic}"
        if self.partition is not None:
            place += f" {'' if self.broker is None else f'{self.broker}-'}{self.partition}"
        error = "" if self.error is None else f", ends with {type(self.error).__name__}"
        return (f"<MessageSet{place}: {self._columns.count} messages, "
                f"offsets {self.base_offset} to {self.next_offset}{error}>")

    def __reduce__(self):
        raise TypeError("a MessageSet borrows its memory and does not pickle: take bytes(ms.data) and base_offset")

    def good(self):
        """The messages before the error, as a set of its own with no error, over the same memory."""
        return self.with_error(None)

    def with_error(self, error):
        """The same messages over the same memory, as a set that ends with ``error`` (an exception, or None)."""
        cdef MessageSet other = MessageSet.__new__(MessageSet)
        other._columns = self._columns
        other.valid_bytes = self.valid_bytes
        other.base_offset = self.base_offset
        other.topic = self.topic
        other.broker = self.broker
        other.partition = self.partition
        other.error = error
        return other

    def skip(self, Py_ssize_t count):
        """The set without its first ``count`` messages (0 to ``len()``, else ValueError), over the same memory.

        Only the columns are copied. ``valid_bytes``, ``next_offset`` and ``error`` stay: it ends where this one does.
        """
        cdef Columns columns = self._columns
        cdef MessageSet other
        cdef Columns rest
        if not 0 <= count <= columns.count:
            raise ValueError(f"{count} messages to skip in a set of {columns.count}")
        rest = separate_columns(columns.count - count)
        rest.views = columns.views
        rest.data = columns.data
        rest.base = columns.base
        rest.append(0, columns, count, 0)
        other = self.with_error(self.error)
        other._columns = rest
        return other

    cpdef int _raise_error(self) except -1:
        """Raises the error, if there is one: a copy, which no traceback ties to this set."""
        if self.error is not None:
            raise copy.copy(self.error)
        return 0

    # messages

    def __len__(self):
        return self._columns.count

    def __bool__(self):
        return self._columns.count > 0

    def __getitem__(self, place):
        cdef Py_ssize_t i
        if isinstance(place, slice):
            return [message_at(self, i) for i in range(*place.indices(self._columns.count))]
        i = PyNumber_AsSsize_t(place, IndexError)
        if i < 0:
            i += self._columns.count
        if not 0 <= i < self._columns.count:
            raise IndexError(f"message {place} of a set of {self._columns.count}")
        return message_at(self, i)

    def __iter__(self):
        cdef Messages messages = Messages.__new__(Messages)
        messages._set = self
        messages._i = 0
        return messages

    def payloads(self):
        """The payloads as a list of bytes, copied. Raises the set's error."""
        cdef Columns columns = self._columns
        cdef Py_ssize_t i
        self._raise_error()
        return [
            PyBytes_FromStringAndSize(<const char *> columns.payload(i), columns.length(i))
            for i in range(columns.count)
        ]

    # columns

    @property
    def offsets(self):
        """int64 array, one element a message: where its stored entry starts. Read-only, the core's own memory."""
        self._raise_error()
        return column(self._columns.offsets, "int64", self._columns.count, 0)

    @property
    def next_offsets(self):
        """int64 array, one element a message: where to fetch next after it. Read-only, the core's own memory."""
        self._raise_error()
        if self._columns.next_offsets is None:
            return column(self._columns.offsets, "int64", self._columns.count, sizeof(int64_t))
        return column(self._columns.next_offsets, "int64", self._columns.count, 0)

    @property
    def indexes(self):
        """int32 array, one element a message: its place in its stored entry, from 0. Read-only."""
        self._raise_error()
        if self._columns.indexes is None:
            return column(Block.zeros(self._columns.count * sizeof(int32_t)), "int32", self._columns.count, 0)
        return column(self._columns.indexes, "int32", self._columns.count, 0)

    @property
    def lengths(self):
        """int32 array, one element a message: bytes in its payload. Read-only, the core's own memory."""
        self._raise_error()
        return column(self._columns.lengths, "int32", self._columns.count, 0)

    # Arrow

    def __arrow_c_array__(self, requested_schema=None):
        """The set as an Arrow struct array: offset int64, index int32, next_offset int64, value binary.

        For ``pyarrow.record_batch(ms)`` and whoever speaks the Arrow PyCapsule interface. Offsets and indexes are the
        core's own memory; the values are gathered (one copy). Raises the set's error, and OverflowError for values
        of 2 GiB and more: take :meth:`binary_view` or smaller sets there.
        """
        return gather([self]).__arrow_c_array__(requested_schema)

    def __arrow_c_schema__(self):
        return gather([]).__arrow_c_schema__()

    def binary_view(self):
        """As the set itself to Arrow, with ``value`` as ``binary_view`` over the bytes where they lie: no copy.

        The Arrow array holds the bytes that were given (and what was inflated) until it is released.
        """
        self._raise_error()
        return export(self._columns)


cdef object integer(str name, object value):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, {type(value).__name__}; it must be an int") from None


cdef object column(Block block, str dtype, Py_ssize_t count, Py_ssize_t skip):
    if count == 0:
        empty = numpy.empty(0, dtype)
        empty.flags.writeable = False
        return empty
    return numpy.frombuffer(block, dtype, count, skip)


@cython.final
@cython.internal
cdef class Messages:
    """Gives the messages of a set, then raises its error."""

    cdef MessageSet _set
    cdef Py_ssize_t _i

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t i = self._i  # read once: threads that share it may get one message twice, but none outside
        if i >= self._set._columns.count:
            self._set._raise_error()
            raise StopIteration
        self._i = i + 1
        return message_at(self._set, i)


cdef inline Message message_at(MessageSet owner, Py_ssize_t i):
    cdef Message message = Message.__new__(Message)
    message._set = owner
    message._i = i
    return message


@cython.final
@cython.freelist(256)
@cython.no_gc  # holds its set, and no set ever holds a message
cdef class Message:
    """One message of a :class:`MessageSet`, which it keeps alive.

    (topic, broker, partition, offset, index) names one message for ever. Sources: kafka.message.Message and
    ByteBufferMessageSet of 0.7.2.
    """

    def __init__(self):
        raise TypeError("messages come out of a MessageSet")

    @property
    def payload(self):
        """The payload as a read-only memoryview, not copied: it holds the memory of the whole set."""
        cdef Columns columns = self._set._columns
        cdef Py_ssize_t length = columns.length(self._i)
        cdef object view = columns.views[columns.region(self._i)]
        cdef Py_ssize_t start = columns.payload(self._i) - address(view)
        return view[start:start + length]

    @property
    def value(self):
        """The payload as bytes, copied."""
        cdef Columns columns = self._set._columns
        return PyBytes_FromStringAndSize(<const char *> columns.payload(self._i), columns.length(self._i))

    @property
    def offset(self):
        """Where its stored entry starts, for a message inside a wrapper the wrapper's start."""
        return self._set._columns.offset(self._i)

    @property
    def index(self):
        """Its place among the messages of its stored entry, from 0, flattened at any depth."""
        return self._set._columns.index(self._i)

    @property
    def next_offset(self):
        """Where to fetch next, as 0.7.2 reports it: inside a wrapper its start, for the last one its end."""
        return self._set._columns.next_offset(self._i)

    @property
    @cython.boundscheck(True)  # of CODECS: bytes that were changed since may say 3
    def codec(self):
        """The :class:`Codec` of the stored entry."""
        cdef Columns columns = self._set._columns
        cdef const uint8_t *stored = columns.data + (columns.offset(self._i) - columns.base)
        return CODECS[stored[5] & 3 if stored[4] else 0]

    @property
    def attributes(self):
        """The message's own attributes byte as an unsigned int; 0 for magic 0, which has none."""
        cdef Columns columns = self._set._columns
        return (columns.payload(self._i) - 5)[0] if columns.magic(self._i) else 0

    @property
    def magic(self):
        """The message's own magic byte: 0 or 1."""
        return self._set._columns.magic(self._i)

    @property
    def crc(self):
        """The CRC-32 of the payload, as stored and as checked."""
        return load_uint32(self._set._columns.payload(self._i) - 4)

    @property
    def topic(self):
        """The topic of its set, or None."""
        return self._set.topic

    @property
    def broker(self):
        """The broker id of its set, or None."""
        return self._set.broker

    @property
    def partition(self):
        """The partition number of its set, or None."""
        return self._set.partition

    def __len__(self):
        return self._set._columns.length(self._i)

    def __reduce__(self):
        raise TypeError("a Message borrows its memory and does not pickle: take its value, offset and index")

    def __repr__(self):
        value = self.value
        shown = f"{value[:32]!r}…" if len(value) > 32 else repr(value)
        return f"<Message offset {self.offset} index {self.index}: {len(value)} bytes {shown}>"
