"""What an output folder is to look like. Goes along with every task, so all of it pickles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka07c.spark.decoders import Decoder

__all__ = ["COMPRESSIONS", "DEFAULT_LAYOUT", "FORMATS", "OUR_COLUMNS", "TARGET_BYTES", "Layout", "OnUndecodable"]

#: how a format's files end, and the compressions that it has, its own choice first
FORMATS = {
    "parquet": (".parquet", ("snappy", "zstd", "lz4", "gzip", "none")),
    "arrow": (".arrow", ("lz4", "zstd", "none")),
    "csv": (".csv", ("none", "gzip", "zstd")),
    "json": (".jsonl", ("none", "gzip", "zstd")),
    "kafka07": (".kafka", ("none",)),
}
#: what compression adds to the name of a file that has none inside
_ENDINGS = {"gzip": ".gz", "zstd": ".zst", "none": ""}

COMPRESSIONS = FORMATS["parquet"][1]

#: a file is closed once it has so many bytes. Spark and others read files of about this size in one task
TARGET_BYTES = 256 * 1024 * 1024

#: 0.7 keeps offsets in a segment as 32-bit numbers in places; its own segments are of 512 MiB
_LARGEST_SEGMENT = 1 << 30

#: what says where a row is from; no decoded column can have such a name
OUR_COLUMNS = ("topic", "broker", "partition", "offset", "index", "next_offset")

#: columns that ``on_undecodable="keep"`` adds
RAW, ERROR = "_raw", "_error"

#: what becomes of a message that the decoder cannot decode
OnUndecodable = Literal["fail", "keep", "dead-letter"]


@dataclass(frozen=True)
class Layout:
    """``compression``: one of the format's (None: its own choice). ``target_bytes``: a file is closed once it has so
    many, and another begun.

    ``by_topic``: files lie in folders ``topic=NAME``. ``date``: makes a date32 or string column of a column of values
    (binary; null: no date), and files lie in folders ``date=…`` of it; ``date_column`` names a decoded one instead.

    ``to``: a format of FORMATS. ``decoder``: makes columns of payloads (see ``decoders``), which stand in the place of
    ``value``. ``on_undecodable``: a message that does not decode ends its partition before it ("fail"), or is a row
    with nulls, its payload in ``_raw`` and the reason in ``_error`` ("keep"), or goes into a file of its own
    ("dead-letter").

    Raises ValueError for what does not go together.
    """

    compression: str | None = None
    target_bytes: int = TARGET_BYTES
    by_topic: bool = False
    date: Callable[[pa.Array], pa.Array[Any]] | None = None
    to: str = "parquet"
    decoder: Decoder | None = None
    on_undecodable: OnUndecodable = "fail"
    date_column: str | None = None

    def __post_init__(self) -> None:
        if self.to not in FORMATS:
            raise ValueError(f"the format is one of {', '.join(FORMATS)}, not {self.to!r}")
        if self.codec not in FORMATS[self.to][1]:
            known = ", ".join(FORMATS[self.to][1])
            raise ValueError(f"compression of {self.to} is one of {known}, not {self.codec!r}")
        if self.target_bytes < 1:
            raise ValueError(f"target_bytes is {self.target_bytes}; it has to be 1 at least")
        if self.on_undecodable not in ("fail", "keep", "dead-letter"):
            raise ValueError(f"on_undecodable is fail, keep or dead-letter, not {self.on_undecodable!r}")
        if self.to == "kafka07":
            self._check_segments()
        if self.decoder is not None:
            self._check_decoder(self.decoder)
        if self.date_column is not None:
            self._check_date_column(self.date_column)

    @property
    def codec(self) -> str:
        """The compression."""
        return self.compression or FORMATS[self.to][1][0]

    @property
    def suffix(self) -> str:
        """How the names of its files end."""
        ending = FORMATS[self.to][0]
        return ending + _ENDINGS[self.codec] if self.to in ("csv", "json") else ending

    @property
    def by_date(self) -> bool:
        """Files lie in folders by date."""
        return self.date is not None or self.date_column is not None

    def _check_segments(self) -> None:
        if self.decoder is not None or self.by_date or self.by_topic:
            raise ValueError(
                "kafka07 is the log byte for byte: no decoder, and no folders by topic or date, go with it"
            )
        if self.target_bytes > _LARGEST_SEGMENT:
            raise ValueError(f"a segment has {_LARGEST_SEGMENT} bytes at most, target_bytes is {self.target_bytes}")

    def _check_decoder(self, decoder: Decoder) -> None:
        import pyarrow as pa

        names = [field.name for field in decoder.schema]
        ours = {*OUR_COLUMNS, RAW, ERROR} | ({"date"} if self.by_date else set())
        for name in names:
            if name.lower() in ours:  # Spark does not tell large letters from small
                raise ValueError(
                    f"the decoder makes a column {name!r}, and there is one of ours of that name:"
                    " give a column prefix, or leave it out of the schema"
                )
            if names.count(name) > 1:
                raise ValueError(f"the decoder makes two columns {name!r}")
        for field in decoder.schema:
            if self.to == "csv" and pa.types.is_nested(field.type):
                raise ValueError(f"CSV has no place for column {field.name!r}, {field.type}: take another format")

    def _check_date_column(self, name: str) -> None:
        import pyarrow as pa

        if self.date is not None or self.decoder is None:
            raise ValueError("a date from a column needs a decoder that makes it, and no other way to a date")
        at = self.decoder.schema.get_field_index(name)
        if at < 0:
            raise ValueError(f"the decoder makes no column {name!r} to take dates from")
        kind = self.decoder.schema.field(at).type
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_string(kind)):
            raise ValueError(f"column {name!r} is {kind}: dates come from a date, a timestamp or text")


#: one folder of files as most readers like them
DEFAULT_LAYOUT = Layout()
