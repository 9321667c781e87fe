from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, overload

import numpy
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafka07c._compress import Codec

class _ArrowArray(Protocol):
    def __arrow_c_array__(self) -> tuple[Any, Any]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self) -> Any: ...

@overload
def build_message_set(
    payloads: Iterable[Buffer] | _ArrowArray | _ArrowStream | NDArray[Any],
    codec: Codec | str | int = "none",
    *,
    magic: Literal[0, 1] = 1,
    offsets: None = None,
) -> bytes: ...
@overload
def build_message_set(
    payloads: Buffer | NDArray[Any],
    codec: Codec | str | int = "none",
    *,
    magic: Literal[0, 1] = 1,
    offsets: Sequence[int] | NDArray[numpy.integer[Any]],
) -> bytes: ...
def wrap_message_set(plain: Buffer | NDArray[Any], codec: Codec | str | int) -> bytes: ...
