"""An embedded Kafka 0.7 broker for development, tests and demos: real segment files, sendfile, ZooKeeper."""

from __future__ import annotations

from kafka07c.broker.broker import Broker
from kafka07c.broker.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig"]
