"""The application's own code inside a producer: encoders, 0.7's callback handler and event handler, how settings name it.

Sources: ``kafka.serializer`` and ``kafka.producer.async`` of 0.7.2, ``CallbackHandler`` and ``EventHandler`` there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka07c.producer.partitioners import DefaultPartitioner
from kafka07c.producer.records import ProducerRecord
from kafka07c.simple import SyncProducer

__all__ = [
    "CALLBACK_HANDLER",
    "ENCODER",
    "EVENT_HANDLER",
    "PARTITIONER",
    "CallbackHandler",
    "DefaultEncoder",
    "Encoder",
    "EventHandler",
    "StringEncoder",
]

#: value -> what is stored: bytes, or another bytes-like object
Encoder = Callable[[Any], Any]


class DefaultEncoder:
    """Values are bytes-like already, and are stored as they are."""

    def __call__(self, value: Any) -> Any:
        """``value``; TypeError when it is not bytes-like."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return value
        try:
            return memoryview(value)
        except TypeError:
            raise TypeError(
                f"a message is bytes-like, not {type(value).__name__}: encode it, or give encoder= "
                "(kafka07c.producer.StringEncoder() for text)"
            ) from None


class StringEncoder:
    """Values are text; it is stored in UTF-8. (0.7 takes the encoding that the JVM was started with.)"""

    def __call__(self, value: Any) -> bytes:
        """The text's bytes; TypeError when it is no text, UnicodeEncodeError for half a surrogate pair."""
        if not isinstance(value, str):
            raise TypeError(f"StringEncoder takes str, not {type(value).__name__}")
        return value.encode()


class CallbackHandler:
    """0.7's ``CallbackHandler``: sees the records on their way, and may change, add and drop some. Override any method.

    With one, every record becomes a :class:`ProducerRecord`: slower than without. A method that raises loses nothing:
    from :meth:`before_enqueue` the error goes to whoever calls ``send``; elsewhere the records concerned fail with it.
    So does what is given and neither given on nor held any more: it is dropped.
    """

    def init(self, properties: Mapping[str, str]) -> None:
        """Once, before anything else, with ``callback.handler.props``."""

    def before_enqueue(self, record: ProducerRecord) -> ProducerRecord:
        """In the thread that sends, before the record is encoded and its partition chosen: the record to take."""
        return record

    def after_enqueue(self, record: ProducerRecord, added: bool) -> None:
        """In the thread that sends: the queue took the record; or not, for it was full or the producer closed."""

    def after_dequeuing_existing_data(self, record: ProducerRecord) -> Iterable[ProducerRecord]:
        """As the record comes out of the queue: what to go on with, such as nothing yet, or several."""
        return (record,)

    def before_sending_data(self, records: Sequence[ProducerRecord]) -> Iterable[ProducerRecord]:
        """Before a batch is sent: the records to send."""
        return records

    def last_batch_before_close(self) -> Iterable[ProducerRecord]:
        """As the producer closes, after all others: records that are still to be sent, such as those held back."""
        return ()

    def close(self) -> None:
        """The last call, when all is sent."""


class EventHandler:
    """0.7's ``EventHandler``: sends a batch in the place of the producer. Override :meth:`handle`."""

    def init(self, properties: Mapping[str, str]) -> None:
        """Once, before anything else, with ``event.handler.props``."""

    def handle(self, records: Sequence[ProducerRecord], producer: SyncProducer, encoder: Encoder) -> None:
        """Send ``records``, each with its ``partition`` chosen, to the broker of ``producer``, in this thread.

        Values are as they were given to ``send``; ``encoder`` makes bytes of them. When this returns the records count
        as written: what the producer does for its own writes (windows, resends, verifying) it cannot do for these.
        When it raises they fail.
        """
        raise NotImplementedError

    def close(self) -> None:
        """The last call, when all is handled."""


@dataclass(frozen=True)
class Hook:
    """A setting whose value is the application's code: what is accepted for it, as a parser for ``settings``.

    ``option``: the keyword of ``Producer``. ``shape``: what the object has to be. ``methods``: what it has to have;
    where there are none, it has to be callable. ``known``: what stands here for classes of 0.7.
    """

    option: str
    shape: str
    known: Mapping[str, Callable[[], Any]]
    methods: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> Any:
        """The object for ``value``: one, a class without arguments, ``"module:name"`` of either, or a Java class."""
        if isinstance(value, str):
            return self._named(name, value.strip())
        return self._checked(name, value, repr(value))

    def _named(self, name: str, text: str) -> Any:
        if text in self.known:
            return self.known[text]()
        module, colon, path = text.partition(":")
        if not colon:
            ours = f" (there is a like one for {', '.join(self.known)})" if self.known else ""
            raise ValueError(
                f"{name} names the Java class {text!r}, which Python cannot run{ours}: give "
                f"{self.option}=, {self.shape}, or name one here as 'module:name'"
            )
        try:
            found = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"{name} is {text!r}, which cannot be imported: {error}") from error
        return self._checked(name, found, repr(text))

    def _checked(self, name: str, value: Any, shown: str) -> Any:
        if isinstance(value, type):
            value = self._made(name, value, shown)
        missing = [method for method in self.methods if not callable(getattr(value, method, None))]
        if missing or not (self.methods or callable(value)):
            lacks = f"; it lacks {', '.join(missing)}" if missing else ""
            raise ValueError(f"{name} must be {self.shape}, but is {shown}{lacks}")
        return value

    def _made(self, name: str, kind: type, shown: str) -> Any:
        try:
            made = kind()
        except TypeError as error:
            raise ValueError(f"{name}: the class {shown} cannot be made without arguments: {error}") from error
        # such as encoder=bytes: to call it is to make one
        return made if self.methods or callable(made) else kind


def _methods(base: type) -> tuple[str, ...]:
    return tuple(name for name in vars(base) if not name.startswith("_"))


#: parsers of the four settings that name code
ENCODER = Hook(
    "encoder",
    "a function (value) -> bytes",
    {"kafka.serializer.DefaultEncoder": DefaultEncoder, "kafka.serializer.StringEncoder": StringEncoder},
)
PARTITIONER = Hook(
    "partitioner", "a function (key, count) -> index", {"kafka.producer.DefaultPartitioner": DefaultPartitioner}
)
CALLBACK_HANDLER = Hook("callback_handler", "a CallbackHandler", {}, _methods(CallbackHandler))
EVENT_HANDLER = Hook(
    "event_handler",
    "an EventHandler",
    {"kafka.producer.async.DefaultEventHandler": lambda: None},  # that is the producer itself
    _methods(EventHandler),
)
