"""Limits and defaults, each with its unit and, where 0.7 has one, its property name."""

from __future__ import annotations

#: bytes that one stored entry may inflate to, all its nested wrappers together
MAX_INFLATED_BYTES = 128 * 1024 * 1024

#: wrappers inside wrappers; deeper is taken for an attack
MAX_NESTING = 64

#: wrappers inside one stored entry, at any depth; more are taken for an attack
MAX_INNER_WRAPPERS = 10_000

#: bytes asked for in one fetch (``fetch.size``)
FETCH_BYTES = 1024 * 1024

#: a fetch grows for one large message up to this many bytes
MAX_FETCH_MESSAGE_BYTES = 64 * 1024 * 1024

#: segment starts that a broker is asked for at once
MAX_SEGMENTS = 100_000

#: the largest stored payload that a broker takes (``max.message.size``)
MAX_MESSAGE_BYTES = 1_000_000

#: the largest request that a broker takes (``max.socket.request.bytes``)
MAX_REQUEST_BYTES = 104_857_600

#: characters in a topic name (``max.topic.name.length``)
MAX_TOPIC_LENGTH = 255

#: seconds for connecting to a broker (``connect.timeout.ms`` 5000)
CONNECT_TIMEOUT = 5.0

#: seconds for one operation on a socket (``socket.timeout.ms`` 30000)
SOCKET_TIMEOUT = 30.0
