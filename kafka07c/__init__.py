"""Apache Kafka 0.7 for Python: the public names, and nothing else.

``kafka07c.broker`` is the embedded broker, ``kafka07c.spark`` the data source and ingest, ``kafka07c.testing`` what tests
need of ZooKeeper; ``kafka07c.errors`` has every error.
"""

from typing import TYPE_CHECKING

try:
    from kafka07c import errors
    from kafka07c._build import build_message_set
    from kafka07c._compress import Codec
    from kafka07c._crc32 import crc32
    from kafka07c._views import Message, MessageSet
except (ImportError, AttributeError, TypeError, ValueError) as error:
    from kafka07c.build_info import why_no_core

    reason = why_no_core(error)
    if reason is None:
        raise
    raise ImportError(reason) from error
from kafka07c.build_info import BuildInfo, build_info
from kafka07c.cluster import Cluster
from kafka07c.consumer import Consumer, ConsumerConfig
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.producer import Delivery, Producer, ProducerConfig
from kafka07c.protocol import EARLIEST, LATEST, FetchRequest, ProduceRequest
from kafka07c.segments import Log
from kafka07c.simple import SimpleConsumer, SyncProducer
from kafka07c.subscription import Blacklist, Whitelist

__all__ = [
    "EARLIEST",
    "LATEST",
    "Blacklist",
    "BuildInfo",
    "Cluster",
    "Codec",
    "Consumer",
    "ConsumerConfig",
    "Delivery",
    "FetchRequest",
    "Log",
    "Message",
    "MessageSet",
    "Position",
    "ProduceRequest",
    "Producer",
    "ProducerConfig",
    "SimpleConsumer",
    "SyncProducer",
    "TopicPartition",
    "Whitelist",
    "__version__",
    "build_info",
    "build_message_set",
    "crc32",
    "errors",
]


if TYPE_CHECKING:  # which takes a module with __getattr__ for one that has every name
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name == "__version__":  # asked for seldom, and the look-up takes a third of the import's time
            from importlib.metadata import version

            return version("kafka07c")
        raise AttributeError(f"module 'kafka07c' has no attribute {name!r}")
