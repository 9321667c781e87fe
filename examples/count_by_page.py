"""Counts clicks by page as a member of a group: python examples/count_by_page.py zk1:2181/kafka clicks reports

Start it twice: the two share the partitions. It ends when nothing came for five seconds; the next run goes on there.
"""

import json
import sys
from collections import Counter

from kafka07c import Consumer


def main(zookeeper: str, topic: str, group: str) -> None:
    pages: Counter[str] = Counter()
    with Consumer(topic, zookeeper=zookeeper, group=group, consumer_timeout_ms=5000) as consumer:
        for message in consumer:
            pages[json.loads(message.value)["page"]] += 1
    # leaving the block commits what was counted
    for page, count in pages.most_common():
        print(f"{count:8} {page}")
    print(f"{pages.total():8} clicks")


if __name__ == "__main__":
    main(*sys.argv[1:4])
