"""``--zk-access``: every command can be let in by a ZooKeeper that asks for a password; the file is read strictly."""

from __future__ import annotations

import argparse
import json
import re

import pytest

from kafka07c import SyncProducer
from kafka07c.broker import Broker
from kafka07c.cli import main, make_parser
from kafka07c.cli.exit_codes import UsageError
from kafka07c.cli.zookeeper_access import with_access
from kafka07c.consumer import Consumer
from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import ACLS, Access, connect
from kafka07c.zookeeper.client import disconnect

from broker_client import log_end
from group_cluster import until

ACCESS = "auth.digest = kafka:secret word\nacl = creator\n"


def documented(command: list[str]) -> set[str]:
    """The words in the part of a command's help about the fields of ``--json``."""
    it = make_parser()
    for word in command:
        below = next((action.choices for action in it._actions if isinstance(action, argparse._SubParsersAction)), {})
        it = below.get(word, it)
    return set(re.findall(r"[a-z_][a-z0-9_]*", it.epilog.partition("example:")[0]))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "access.properties"
    path.write_text(ACCESS)
    return path


@pytest.mark.zookeeper
def test_commands_with_and_without_a_password(tmp_path, file, capsys, monkeypatch):
    """All nodes are for their creator alone, and the creator is who knows the password."""
    monkeypatch.delenv("KAFKA07C_ZOOKEEPER_ACCESS", raising=False)
    with ZooKeeper(tick_ms=100) as server:
        where = f"{server.address}/closed"
        access = with_access(where, str(file))
        disconnect(connect(access, make_chroot=True))
        properties = {"log.flush.interval": 1}
        with Broker(tmp_path / "logs", zookeeper=access, properties=properties) as broker:
            with SyncProducer("127.0.0.1", broker.port) as producer:
                producer.send("clicks", 0, [b"one", b"two"])
            until(lambda: log_end(broker.port, "clicks", 0))
            with Consumer("clicks", zookeeper=access, group="g", until_end=True, fetch_backoff_ms=10) as consumer:
                assert [message.value for message in consumer] == [b"one", b"two"]

            commands = [
                ["topics"], ["brokers"], ["groups"], ["lag", "-g", "g"], ["verify-rebalance", "-g", "g"],
                ["offsets", "show", "-g", "g"], ["offsets", "export"], ["offsets", "before", "latest", "-t", "clicks"],
                ["offsets", "reset", "-g", "g", "--all-topics", "--to", "earliest", "--execute"],
                ["cat", "-t", "clicks", "-e", "-q"], ["cat", "-G", "h", "clicks", "-e", "-q"],
                ["perf", "fetch", "-t", "clicks"],
            ]  # fmt: skip
            for command in commands:
                assert main([*command, "--zookeeper", where, "--zk-access", str(file), "--json"]) == 0, command
                printed = capsys.readouterr().out
                assert printed or command[0] == "verify-rebalance", command
                for line in printed.splitlines():
                    assert set(json.loads(line)) <= documented(command), command
                assert main([*command, "--zookeeper", where, "--json"]) in (2, 3), command
                out, err = capsys.readouterr()
                assert out == "" and "NoAuth" in err, command
            both = ["--to-zookeeper", where, "--zookeeper", where, "clicks", "--rename", "%t-2", "-e", "--verify"]
            assert main(["mirror", *both, "--zk-access", str(file), "--to-zk-access", str(file)]) == 0
            assert main(["cat", "--zookeeper", where, "--zk-access", str(file), "-t", "clicks-2", "-e", "-q"]) == 0
            assert capsys.readouterr().out == "one\ntwo\n"
            monkeypatch.setenv("KAFKA07C_ZOOKEEPER_ACCESS", str(file))
            assert main(["topics", "--zookeeper", where, "--json"]) == 0
            topics = [json.loads(line)["topic"] for line in capsys.readouterr().out.splitlines()]
            assert topics == ["clicks", "clicks-2"]


def test_all_that_a_file_can_say(tmp_path):
    path = tmp_path / "it"
    path.write_text(
        "auth.digest=a:b\nauth.sasl = c\ntls=true\ntls.ca=ca.pem\ntls.cert=c.pem\ntls.key=k.pem\n"
        "tls.key.password=p\ntls.verify=false\nacl=creator-read\n"
    )
    assert with_access("h:1/x", str(path)) == Access(
        "h:1/x", [("digest", "a:b"), ("sasl", "c")], ACLS["creator-read"], True, "ca.pem", "c.pem", "k.pem", "p", False
    )
    assert with_access("h:1", None) == "h:1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tls.verfy=true", "is tls.verify meant"),
        ("tls=yes", "tls is one of true, false, not 'yes'"),
        ("acl=all", "acl is one of open, creator, creator-read, not 'all'"),
        ("tls.ca=x", "tls.ca without tls = true"),
        ("auth.=x", "there is no 'auth.'"),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path, text, problem):
    path = tmp_path / "it"
    path.write_text(text)
    with pytest.raises(UsageError, match=problem) as caught:
        with_access("h:1", str(path))
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        with_access("h:1", str(tmp_path / "it"))


def test_the_password_is_in_no_message(file):
    assert "secret" not in repr(with_access("h:1", str(file))) + repr(argparse.Namespace(zk_access=str(file)))
