"""The stage's tricks with brokers, tested: that they do what the scenarios count on."""

from __future__ import annotations

import pytest
from faults.stage import BrokerStage

from kafka07c import Log, SimpleConsumer, SyncProducer
from kafka07c.protocol import LATEST
from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.zookeeper

FLUSH_EVERY_100 = {"log.flush.interval": 100, "log.default.flush.scheduler.interval.ms": 3_600_000}


def test_a_crash_takes_of_what_is_not_flushed_and_of_nothing_else():
    ends = set()
    with ZooKeeper(tick_ms=200) as zookeeper, BrokerStage(
        zookeeper, "crash", seed=3, brokers=1, partitions=1, proxied=True, broker_properties=FLUSH_EVERY_100
    ) as stage:
        (broker,) = stage.brokers
        for _ in range(3):
            with SyncProducer("127.0.0.1", broker.port) as producer, SimpleConsumer("127.0.0.1", broker.port) as asking:
                for number in range(25):
                    producer.send("clicks", 0, [b"%d" % number] * 7)
                    flushed = asking.get_offsets_before("clicks", 0, LATEST)[0]  # and all before it is carried out
            (path,) = (broker.log_dir / "clicks-0").glob("*.kafka")
            size = path.stat().st_size
            assert flushed < size
            broker.crash()
            assert flushed <= path.stat().st_size <= size
            ends.add((size - path.stat().st_size) % 11)
            broker.start()
            log = Log(broker.log_dir / "clicks-0")
            assert log.verify().ok
            assert flushed <= log.flushed_offset
    assert len(ends) > 1  # in the middle of a message, too
