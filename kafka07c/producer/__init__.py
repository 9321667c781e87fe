"""Producing: ``Producer``, its settings, partitioners and handlers."""

from kafka07c.producer.config import ProducerConfig, producer_table
from kafka07c.producer.handlers import CallbackHandler, DefaultEncoder, EventHandler, StringEncoder
from kafka07c.producer.partitioners import (
    DefaultPartitioner,
    Partitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    default_partition,
)
from kafka07c.producer.producer import Producer
from kafka07c.producer.records import Delivery, ProducerRecord, State

__all__ = [
    "CallbackHandler",
    "DefaultEncoder",
    "DefaultPartitioner",
    "Delivery",
    "EventHandler",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerRecord",
    "RandomPartitioner",
    "RoundRobinPartitioner",
    "State",
    "StickyPartitioner",
    "StringEncoder",
    "default_partition",
    "producer_table",
]
