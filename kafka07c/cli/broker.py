"""``kafka07c broker``: the embedded broker as a process of its own."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading

from kafka07c.cli.arguments import Commands, add_command, add_metrics, serving_metrics
from kafka07c.cli.exit_codes import OK, UsageError
from kafka07c.cli.output import json_line, note
from kafka07c.cli.zookeeper_access import add_access, with_access

__all__ = ["add_parser", "run"]

_DEFAULT_PORT = 9092

_EXAMPLE = """\
  kafka07c broker --log-dir /tmp/kafka-logs --partitions 3 --property log.flush.interval=1
  kafka07c broker --config server.properties --zookeeper 127.0.0.1:2181/dev --id 1 --port 0"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "broker",
        run,
        help="run a Kafka 0.7 broker for development, tests and demos",
        description=(
            "Run a Kafka 0.7 broker, for development, tests and demos; it is no server for production.\n"
            "It reads and writes real 0.7 log directories. One line on stdout, host:port, says that it listens;\n"
            "SIGTERM or SIGINT ends it cleanly. Retention is off unless a property turns it on."
        ),
        example=_EXAMPLE,
        fields="broker: broker, host, port",
    )
    parser.add_argument("--log-dir", metavar="DIR", help="where the logs are; needed unless a property log.dir says it")
    parser.add_argument("--id", type=int, metavar="N", help="broker id (default: 0)")
    parser.add_argument("--port", type=int, metavar="N", help=f"0 takes a free one (default: {_DEFAULT_PORT})")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind to (default: %(default)s)")
    parser.add_argument("--partitions", type=int, metavar="N", help="partitions of each topic (default: 1)")
    parser.add_argument("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="register the broker and its topics there")
    add_access(parser)
    parser.add_argument("--config", metavar="FILE", help="settings by their 0.7 names, as in server.properties")
    parser.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", help="one setting; goes before those in FILE"
    )
    add_metrics(parser)
    parser.add_argument("--json", action="store_true", help="say where it listens as an object: broker, host, port")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Options go before ``--property``, and that goes before ``--config``."""
    from kafka07c.broker import Broker

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    properties = _properties(args)
    port = _DEFAULT_PORT if args.port is None and "port" not in properties else args.port
    with _StopSignals() as signals, serving_metrics(args) as metrics:
        # by an argument as by the property, for only an argument can say how ZooKeeper lets us in
        zookeeper = args.zookeeper or properties.get("zk.connect")
        access = with_access(zookeeper, args.zk_access) if zookeeper else None
        try:
            broker = Broker(args.log_dir, args.id, port, args.partitions, access, args.host, properties, metrics=metrics)
        except ValueError as error:
            raise UsageError(str(error)) from None
        try:
            broker.start()
            signals.only_note()
            note("this broker is for development, tests and demos")
            where = {"broker": broker.broker_id, "host": broker.host, "port": broker.port}
            print(json_line(where) if args.json else f"{broker.host}:{broker.port}", flush=True)
            signals.wait()
        except KeyboardInterrupt:
            pass  # asked to stop before it had started
        finally:
            broker.stop()
    return OK


def _properties(args: argparse.Namespace) -> dict[str, str]:
    from kafka07c.properties import read_properties

    properties = {}
    if args.config is not None:
        try:
            properties = read_properties(args.config)
        except OSError as error:
            raise UsageError(f"cannot read {args.config!r}: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(str(error)) from None
    for text in args.property:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--property must read NAME=VALUE, but is {text!r}")
        properties[name.strip()] = value
    return properties


class _StopSignals:
    """SIGTERM and SIGINT. Until :meth:`only_note` they are a KeyboardInterrupt, for the start may take long (a stale
    node in ZooKeeper is waited for); after it they end :meth:`wait` and disturb nothing, a stop under way least."""

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._interrupt = True

    def __enter__(self) -> _StopSignals:
        self._before = [signal.signal(number, self._handle) for number in self._SIGNALS]
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in zip(self._SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        self._arrived.set()
        if self._interrupt:
            self._interrupt = False
            raise KeyboardInterrupt

    def only_note(self) -> None:
        self._interrupt = False

    def wait(self) -> None:
        self._arrived.wait()
