"""What an output folder is to look like. Goes along with every task, so all of it pickles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COMPRESSIONS", "DEFAULT_LAYOUT", "TARGET_BYTES", "Layout"]

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")

#: a file is closed once it has so many bytes. Spark and others read files of about this size in one task
TARGET_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Layout:
    """``compression``: one of COMPRESSIONS. ``target_bytes``: a file is closed once it has so many, and another begun.

    ``by_topic``: files lie in folders ``topic=NAME``. ``date``: makes a date32 or string column of a column of values
    (binary; null: no date), and files lie in folders ``date=…`` of it.
    """

    compression: str = "snappy"
    target_bytes: int = TARGET_BYTES
    by_topic: bool = False
    date: Callable[[pa.Array], pa.Array[Any]] | None = None

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"compression is one of {', '.join(COMPRESSIONS)}, not {self.compression!r}")
        if self.target_bytes < 1:
            raise ValueError(f"target_bytes is {self.target_bytes}; it has to be 1 at least")


#: one folder of files as most readers like them
DEFAULT_LAYOUT = Layout()
