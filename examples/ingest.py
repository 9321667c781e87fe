"""Takes a topic's clicks into Parquet, exactly once: python examples/ingest.py zk1:2181/kafka clicks clicks-parquet

Run it again for what came since. The same as `kafka07c ingest`, with a look into the files.
"""

import sys

import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafka07c.ranges import open_source
from kafka07c.spark import files_of
from kafka07c.spark.ingest import ingest


def main(zookeeper: str, topic: str, out: str) -> None:
    with open_source(zookeeper=zookeeper) as source:
        report = ingest(source, [topic], out, master="local[2]")
    for each in report.partitions:
        print(f"{each.topic} {each.broker}-{each.partition}: {each.messages} messages from offset {each.start} to {each.end}")
        if each.failure is not None:
            print(f"  ended there: {each.failure}", file=sys.stderr)
    clicks = ds.dataset(files_of(out)).to_table(columns=["value"])  # by the manifests: a crash leaves no row twice
    print(f"{len(clicks)} clicks in {out}, {pc.count_distinct(clicks['value']).as_py()} of them different")


if __name__ == "__main__":
    main(*sys.argv[1:4])
