"""The consumer: as a member of a group, or of partitions as told.

From the network to the application: ``fetcher`` fills the queues of ``chunks``; ``reader`` has what is ours just now, which
``coordinator`` settles with the group; ``streams`` and ``consumer`` hand it out, and ``commits`` what came back.
"""

from kafka07c.consumer.config import ConsumerConfig, consumer_table
from kafka07c.consumer.consumer import Consumer
from kafka07c.consumer.streams import MessageStream

__all__ = ["Consumer", "ConsumerConfig", "MessageStream", "consumer_table"]
