"""Spark finds the data source ``kafka07`` by itself where this package is installed: by its name, ``pyspark_…``.

It looks with the Python in ``PYSPARK_PYTHON``, or the ``python3`` on PATH; ``kafka07c.spark.register(spark)`` does
without.
"""

from kafka07c.spark.source import Kafka07DataSource as DefaultSource

__all__ = ["DefaultSource"]
