"""Starting Spark from pip's packages alone, on whatever machine this is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafka07c.errors import MissingExtraError
from kafka07c.java import java_home

__all__ = ["get_or_create", "refuse_connect"]

#: what every session gets unless the caller says otherwise
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Since 4.3 Spark refuses a checkpoint that holds anything, a file of its own included that a kill -9 left half
    # written there: a query killed at the very beginning would never start again.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}

#: what a session gets whose executors all run on this machine
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_LOCAL_MASTER = re.compile(r"local\b|spark://(localhost|127\.0\.0\.1)\b")

_CONNECT = "sc://"

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def get_or_create(app: str, master: str | None, conf: Mapping[str, object]) -> SparkSession:
    """The running session, else a new one; see `kafka07c.spark.session`."""
    settings = {name: str(value) for name, value in conf.items()}
    if master is not None and master.startswith(_CONNECT):
        return _connected(master, app, settings)
    if SparkContext._active_spark_context is None:
        settings = {"spark.app.name": app} | ({"spark.master": master} if master else {}) | settings
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started Java, and its settings stand
            settings = _new_session_settings(settings)
            _set_environment(settings["spark.master"])
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _connected(url: str, app: str, settings: Mapping[str, str]) -> SparkSession:
    """A session with a Spark Connect server; Java, Python and the cluster are the server's business."""
    try:
        import_module("grpc_status")  # what comes last of what Connect needs
    except ImportError:
        raise MissingExtraError(
            "grpcio is not installed, and Spark Connect needs it: pip install 'kafka07c[spark,connect]'"
        ) from None
    builder = SparkSession.builder.remote(url).appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def refuse_connect(spark: object, what: str) -> None:
    """ValueError for a session over Spark Connect, which has no driver of its own to do ``what`` in."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ValueError(
            f"{what} commits from the driver's own process, and a session over Spark Connect has none here: "
            "run it where the driver is (spark-submit, or kafka07c.spark.session())"
        )


def _new_session_settings(wanted: dict[str, str]) -> dict[str, str]:
    settings = _SETTINGS | {"spark.master": "local[*]"} | wanted
    if _LOCAL_MASTER.match(settings["spark.master"]):
        settings = _LOCAL_SETTINGS | settings
    # Later options win: the caller may name a logging configuration of his own.
    logging = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    settings[_JAVA_OPTIONS] = f"{logging} {settings.get(_JAVA_OPTIONS, '')}".rstrip()
    return settings


def _set_environment(master: str) -> None:
    """What Spark reads from the environment only. Its launcher and the workers inherit it."""
    os.environ["JAVA_HOME"] = str(java_home())
    if _LOCAL_MASTER.match(master):
        # Without an address Spark looks up the host's own name, and does not start when that does not resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:  # a cluster's executors may have an environment of their own
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
