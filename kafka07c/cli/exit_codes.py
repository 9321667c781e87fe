"""How a command ends, the same for all of them.

0 ok; 1 a fault of our own; 2 the command line asks for what cannot be; 3 nobody could be reached; 4 corrupt data was
met; 5 the job was not done, or not to its end, for another reason: running it again may go further.
130: interrupted from the keyboard (a command that runs until then ends with 0).
"""

from __future__ import annotations

from kafka07c.errors import (
    BrokerConnectionError,
    CorruptMessageError,
    InvalidTopicError,
    KafkaError,
    MissingExtraError,
    OutputFolderError,
    UndecodableError,
    UnknownTopicError,
    ZooKeeperError,
)

__all__ = [
    "CORRUPT", "INCOMPLETE", "INTERNAL", "INTERRUPTED", "OK", "UNREACHABLE", "USAGE", "UnreachableError", "UsageError",
    "exit_code",
]  # fmt: skip

OK = 0
INTERNAL = 1
USAGE = 2
UNREACHABLE = 3
CORRUPT = 4
INCOMPLETE = 5
INTERRUPTED = 130


class UsageError(KafkaError):
    """Arguments that argparse cannot know to be wrong."""


class UnreachableError(KafkaError):
    """Nobody answers where somebody other than a broker or ZooKeeper should."""


_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((UsageError, InvalidTopicError, UnknownTopicError, MissingExtraError, OutputFolderError), USAGE),
    ((BrokerConnectionError, ZooKeeperError, UnreachableError), UNREACHABLE),
    ((CorruptMessageError, UndecodableError), CORRUPT),
    ((KafkaError, OSError), INCOMPLETE),
)


def exit_code(error: Exception) -> int:
    """The code for an error that ends a command."""
    for classes, code in _CODES:
        if isinstance(error, classes):
            return code
    return INTERNAL
