"""Kafka 0.7 in Spark: the data source ``kafka07``, and a session that is set up for it.

::

    spark = kafka07c.spark.session()
    df = spark.read.format("kafka07").option("kafka07.zookeeper", "host:2181").option("subscribe", "clicks").load()

Needs ``pip install 'kafka07c[spark]'``. Only this package imports pyspark, and only when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kafka07c.errors import MissingExtraError

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession

    from kafka07c.spark.archiving import archive
    from kafka07c.spark.listener import add_metrics
    from kafka07c.spark.progress import watch
    from kafka07c.spark.remote import files_of

__all__ = ["add_metrics", "archive", "files_of", "register", "session", "watch"]

#: what comes from modules that import Spark or pyarrow, and so only when it is asked for
_LATER = {"archive": "archiving", "add_metrics": "listener", "files_of": "remote", "watch": "progress"}


if not TYPE_CHECKING:

    def __getattr__(name: str):
        if name in _LATER:
            return getattr(_module(f"kafka07c.spark.{_LATER[name]}"), name)
        raise AttributeError(f"module 'kafka07c.spark' has no attribute {name!r}")


def session(app: str = "kafka07c", master: str | None = None, **conf: object) -> SparkSession:
    """A Spark session with ``kafka07`` registered: the one that is running, else a new one.

    A new one runs here, on all cores (``master`` ``"local[*]"``), listens on 127.0.0.1 only, and needs no host name
    that resolves and no Java on PATH. ``conf`` are Spark's settings, which go before ours:
    ``session(**{"spark.driver.memory": "4g"})``. In a session that is running only those take effect that Spark can
    change then. The process's environment gets JAVA_HOME, PYSPARK_PYTHON and SPARK_LOCAL_IP, which Spark reads.

    ``master`` ``"sc://host:15002"`` is a Spark Connect server, whose workers need kafka07c installed (the extra
    ``connect`` is needed here); source, sink and ``watch`` work there, `archive` needs the driver.

    MissingExtraError when pyspark, or any Java, is missing.
    """
    source = _module("kafka07c.spark.source").Kafka07DataSource  # first: what is missing is told before Java starts
    spark: SparkSession = _module("kafka07c.spark.sessions").get_or_create(app, master, conf)
    spark.dataSource.register(source)
    return spark


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("kafka07")`` known to a session of the caller's own.

    Its workers have to find this package: the Python in PYSPARK_PYTHON needs kafka07c installed on every node.
    """
    source = _module("kafka07c.spark.source").Kafka07DataSource
    spark.dataSource.register(source)


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("pyspark", "py4j", "pyarrow", "pandas"):
            raise MissingExtraError(
                f"{missing} is not installed, and Spark needs it: pip install 'kafka07c[spark]'"
            ) from None
        raise
