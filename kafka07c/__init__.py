"""Apache Kafka 0.7 for Python."""

from kafka07c import errors
from kafka07c._build import build_message_set
from kafka07c._compress import Codec
from kafka07c._crc32 import crc32
from kafka07c._views import Message, MessageSet

__all__ = ["Codec", "Message", "MessageSet", "build_message_set", "crc32", "errors"]
