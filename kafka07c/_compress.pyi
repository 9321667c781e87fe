import enum
from typing import Literal

from typing_extensions import Buffer

class Codec(enum.IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2

def codec_of(codec: Codec | str | int) -> Codec: ...

class InflateError(Exception): ...

def inflate(codec: Literal[1, 2] | Codec, data: Buffer, max_bytes: int) -> memoryview: ...
def deflate(codec: Literal[1, 2] | Codec, data: Buffer) -> bytes: ...
