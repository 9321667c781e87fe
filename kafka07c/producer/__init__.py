"""Producing: ``Producer``, its settings, partitioners and handlers."""

from kafka07c.producer.records import Delivery, ProducerRecord, State

__all__ = ["Delivery", "ProducerRecord", "State"]
