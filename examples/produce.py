"""Produces clicks: python examples/produce.py zk1:2181/kafka clicks 100000

As JSON, by the user's id: all of a user's clicks are in one partition, in order.
"""

import json
import random
import sys

from kafka07c import Producer


def main(zookeeper: str, topic: str, count: int) -> None:
    failed = []
    with Producer(zookeeper=zookeeper, codec="gzip", dead_letter=failed.append) as producer:
        for start in range(0, count, 1000):
            numbers = range(start, min(start + 1000, count))
            users = [f"user-{random.randrange(1000)}" for _ in numbers]
            clicks = [
                json.dumps({"user": user, "number": number, "page": f"/page/{random.randrange(50)}"}).encode()
                for user, number in zip(users, numbers, strict=True)
            ]
            producer.send_many(topic, clicks, users)
    # leaving the block waits for the end of all
    for delivery in failed:
        print(f"not written: {delivery.value!r}: {delivery.error}", file=sys.stderr)
    print(f"{count - len(failed)} clicks written to {topic}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
