"""The commands about clusters and groups, against the real ZooKeeper, embedded brokers and recorded nodes."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from kazoo.exceptions import NoNodeError

from kafka07c import SyncProducer
from kafka07c.broker import Broker
from kafka07c.cli import main, offsets
from kafka07c.cli.offsets import format_line, parse_lines
from kafka07c.cluster import Cluster
from kafka07c.names import TopicPartition
from kafka07c.ranges import open_source
from kafka07c.testing import free_ports

pytestmark = pytest.mark.zookeeper

GOLDEN = Path(__file__).parent / "golden07"
MEMBER_1, MEMBER_2 = "golden_vm-1795170363144-438935b1", "golden_vm-1795170368335-a24a820f"


@pytest.fixture
def run(capsys, hosts, monkeypatch):
    """The exit code, stdout and stderr of a command on this test's ZooKeeper."""
    monkeypatch.setenv("KAFKA07C_ZOOKEEPER", hosts)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


def rows(printed: str) -> list[list[str]]:
    """The cells of a table without its heads; columns are two or more blanks apart."""
    return [re.split(" {2,}", line.strip()) for line in printed.splitlines()[2:]]


def objects(printed: str) -> list[dict]:
    return [json.loads(line) for line in printed.splitlines()]


def restore(client, name: str) -> None:
    """The nodes of a recording, as they were but for their sessions."""
    for node in json.loads((GOLDEN / "zk" / name).read_text()):
        if node["path"] not in ("/", "/zookeeper") and not node["path"].startswith("/zookeeper/"):
            client.create(node["path"], base64.b64decode(node["data_base64"]), makepath=True)


@pytest.fixture
def recorded(client):
    restore(client, "2-two-consumers-static-and-whitelist.json")


# topics and brokers


def test_topics(run, recorded):
    code, out, err = run("topics", "-t", "plain", "-t", "a b")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["TOPIC", "PARTITIONS", "ON", "BROKER"]
    assert rows(out)[0][0] == "a b"
    listed = objects(run("topics", "--json")[1])
    assert {"topic": "plain", "partitions": 4, "brokers": {"0": 2, "1": 2}} in listed and len(listed) == 26


def test_a_topic_that_is_not_there(run, recorded):
    assert run("topics", "-t", "nonsense") == (2, "", "kafka07c topics: no broker has a topic 'nonsense'\n")


def test_brokers(run, recorded):
    code, out, _ = run("brokers")
    assert code == 0 and [row[:3] for row in rows(out)] == [["0", "127.0.0.1", "19192"], ["1", "127.0.0.1", "19193"]]
    first = objects(run("brokers", "--json")[1])[0]
    assert (first["id"], first["host"], first["port"]) == (0, "127.0.0.1", 19192)
    assert first["partitions"] >= first["topics"] == 26


def test_a_damaged_node_is_noted_and_hides_nothing_else(run, recorded, client):
    client.create("/brokers/ids/7", b"nonsense")
    code, out, err = run("brokers")
    assert code == 0 and len(rows(out)) == 2 and "left out: /brokers/ids/7" in err


def test_an_empty_zookeeper(run):
    for command in ("topics", "brokers", "groups"):
        code, out, err = run(command)
        assert (code, len(out.splitlines()), err) == (0, 2, "")
        assert run(command, "--json") == (0, "", "")


# groups


def test_groups(run, client):
    restore(client, "4-blacklist-consumer.json")
    assert objects(run("groups", "--json")[1]) == [
        {"group": "golden", "members": 0, "topics": 4, "owned": 0, "committed": 12},
        {"group": "golden-black", "members": 1, "topics": 1, "owned": 4, "committed": 4},
    ]
    assert rows(run("groups")[1])[1] == ["golden-black", "1", "1", "4", "4"]


def test_the_members_of_a_group(run, recorded):
    code, out, _ = run("groups", "-g", "golden", "--json")
    assert code == 0 and objects(out) == [
        {"group": "golden", "consumer_id": MEMBER_1, "partitions": 4, "subscription": '{ "plain": 2,"gzip": 1 }'},
        {"group": "golden", "consumer_id": MEMBER_2, "partitions": 8, "subscription": "*2*plain|snappy|mixed"},
    ]


@pytest.mark.parametrize(
    "arguments", [("groups", "-g"), ("lag", "-g"), ("verify-rebalance", "-g"), ("offsets", "show", "-g")]
)
def test_a_group_that_is_not_there(run, recorded, arguments):
    code, out, err = run(*arguments, "nobody")
    assert (code, out) == (2, "") and "there is no group 'nobody'" in err and err.count("\n") == 1


# verify-rebalance


@pytest.mark.parametrize(
    ("recording", "group"),
    [("2-two-consumers-static-and-whitelist.json", "golden"), ("4-blacklist-consumer.json", "golden-black")],
)
def test_recorded_groups_own_what_the_algorithm_says(run, client, recording, group):
    restore(client, recording)
    code, out, err = run("verify-rebalance", "-g", group)
    assert (code, out) == (0, "") and f"partitions of group {group} are owned as they should be" in err
    assert run("verify-rebalance", "-g", group, "--json")[:2] == (0, "")


def test_what_is_wrong_with_owners_is_named(run, recorded, client):
    client.delete("/consumers/golden/owners/gzip/0-0")
    client.set("/consumers/golden/owners/gzip/0-1", b"golden_gone-1-abc-0")
    client.set("/consumers/golden/owners/plain/0-0", f"{MEMBER_2}-1".encode())
    client.create("/consumers/golden/owners/plain/7-0", f"{MEMBER_2}-1".encode())
    code, out, err = run("verify-rebalance", "-g", "golden", "--json")
    assert code == 5 and "4 partitions of group golden are not owned as they should be" in err
    assert [tuple(each.values())[1:] for each in objects(out)] == [
        ("gzip", "0-0", None, f"{MEMBER_1}-0", "nobody owns it"),
        ("gzip", "0-1", "golden_gone-1-abc-0", f"{MEMBER_1}-0", "its owner is no member of the group"),
        ("plain", "0-0", f"{MEMBER_2}-1", f"{MEMBER_1}-0", "another thread should own it"),
        ("plain", "7-0", f"{MEMBER_2}-1", None, "no broker has it, or no member wants it"),
    ]
    assert len(rows(run("verify-rebalance", "-g", "golden")[1])) == 4


def test_a_member_that_cannot_be_read_is_named(run, recorded, client):
    client.set(f"/consumers/golden/ids/{MEMBER_1}", b"*1*(")
    code, out, err = run("verify-rebalance", "-g", "golden")
    assert (code, out) == (5, "") and f"member {MEMBER_1} of group 'golden'" in err and err.count("\n") == 1


# lag, with brokers of our own


#: bytes in the log of one message ``payload NNNN``
ENTRY = 10 + 12


@pytest.fixture
def brokers(hosts, tmp_path):
    """Two brokers with two partitions of topic ``clicks``; 10 messages in 0-0, 20 in 1-1."""
    properties = {"log.flush.interval": "1"}
    started = []
    try:
        for number in (0, 1):
            started.append(Broker(tmp_path / str(number), number, 0, 2, hosts, properties=properties))
            started[-1].start()
        for broker, partition, messages in ((0, 0, 10), (1, 1, 20)):
            with SyncProducer("127.0.0.1", started[broker].port) as producer:
                producer.send("clicks", partition, [b"payload %04d" % number for number in range(messages)])
        ends = {"0-0": 10 * ENTRY, "0-1": 0, "1-0": 0, "1-1": 20 * ENTRY}
        with Cluster(zookeeper=hosts) as cluster, open_source(zookeeper=hosts) as source:
            until(lambda: cluster.refresh() or len(cluster.partitions("clicks")) == 4)  # registered a moment later
            until(lambda: {tp.name: source.bounds(tp)[1] for tp in source.partitions("clicks")} == ends)
        yield started, ends
    finally:
        for broker in started:
            broker.stop()


def commit(client, group: str, positions: dict[str, int], topic: str = "clicks") -> None:
    for name, offset in positions.items():
        client.create(f"/consumers/{group}/offsets/{topic}/{name}", b"%d" % offset, makepath=True)


def committed(client, group: str, topic: str = "clicks") -> dict[str, bytes]:
    root = f"/consumers/{group}/offsets/{topic}"
    return {name: client.get(f"{root}/{name}")[0] for name in sorted(client.get_children(root))}


def test_lag(run, client, brokers):
    _, ends = brokers
    commit(client, "g", {"0-0": 0, "1-1": ends["1-1"] - 5, "9-9": 3})
    client.create("/consumers/g/ids/g_m", b"*2*click.*", ephemeral=True, makepath=True)
    client.create("/consumers/g/owners/clicks/1-1", b"g_m-1", ephemeral=True, makepath=True)
    code, out, err = run("lag", "-g", "g", "--json")
    assert (code, err) == (0, "")
    assert [list(each.values())[2:] for each in objects(out)] == [
        ["0-0", 0, ends["0-0"], ends["0-0"], None, None],
        ["0-1", None, 0, None, None, None],
        ["1-0", None, 0, None, None, None],
        ["1-1", ends["1-1"] - 5, ends["1-1"], 5, "g_m", "g_m-1"],
        ["9-9", 3, None, None, None, None],  # no such broker any more
    ]
    code, out, _ = run("lag", "-g", "g")
    assert out.split()[:8] == "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID OWNER".split()
    assert run("lag", "-g", "g", "-t", "other")[1].count("\n") == 2


def test_a_group_that_has_committed_nothing_yet_is_seen_by_its_members(run, client, brokers):
    client.create("/consumers/g/ids/g_m", b'{ "clicks": 1 }', ephemeral=True, makepath=True)
    assert [each["partition"] for each in objects(run("lag", "-g", "g", "--json")[1])] == ["0-0", "0-1", "1-0", "1-1"]


def test_lag_with_a_broker_that_cannot_be_reached(run, client, brokers):
    started, ends = brokers
    port = free_ports(1)[0]
    client.set("/brokers/ids/1", f"h-1:127.0.0.1:{port}".encode())
    commit(client, "g", {"0-0": 0, "1-1": 0})
    code, out, err = run("lag", "-g", "g", "--json")
    found = {each["partition"]: each["log_end_offset"] for each in objects(out)}
    assert code == 3 and str(port) in err and err.count("\n") == 1
    assert found == {"0-0": ends["0-0"], "0-1": 0, "1-0": None, "1-1": None}


# offsets: show, export, import


def test_show(run, recorded):
    shown = objects(run("offsets", "show", "-g", "golden", "-t", "plain", "--json")[1])
    assert [(each["partition"], each["current_offset"], each["index"]) for each in shown] == [
        ("0-0", 470, 0), ("0-1", 26, 0), ("1-0", 84, 0), ("1-1", 84, 0),
    ]  # fmt: skip


def test_export_is_what_0_7_2_exports(run, client):
    restore(client, "3-after-consumers-shut-down.json")
    code, out, _ = run("offsets", "export", "-g", "golden")
    golden = (GOLDEN / "tools" / "export-zk-offsets.txt").read_text()
    assert code == 0 and out.splitlines() == sorted(golden.splitlines())  # ZooKeeper's children have no order


def test_export_to_a_file_and_import_of_it(run, client, tmp_path):
    restore(client, "4-blacklist-consumer.json")
    code, out, _ = run("offsets", "export", "-o", tmp_path / "all.txt")
    text = (tmp_path / "all.txt").read_text()
    assert (code, out) == (0, "") and set(parse_lines(text)) == {"golden", "golden-black"}
    before = committed(client, "golden", "plain")
    client.delete("/consumers/golden", recursive=True)
    client.delete("/consumers/golden-black/ids", recursive=True)
    code, out, err = run("offsets", "import", tmp_path / "all.txt")
    assert code == 0 and "nothing was changed" in err and client.exists("/consumers/golden") is None
    assert run("offsets", "import", tmp_path / "all.txt", "--execute")[0] == 0
    assert committed(client, "golden", "plain") == before
    assert run("offsets", "export")[1] == text


def test_import_of_what_0_7_2_exported(run, client):
    code, _, err = run("offsets", "import", GOLDEN / "tools" / "export-zk-offsets.txt", "--execute")
    assert code == 0 and "12 offsets set" in err
    assert committed(client, "golden", "plain") == {"0-0": b"470", "0-1": b"26", "1-0": b"84", "1-1": b"84"}


@pytest.mark.parametrize(
    "line",
    ["x", "/consumers/g/offsets/t/0-0", "/consumers/g/offsets/t/0-0:", "/consumers/g/offsets/t/0-0:-1",
     "/consumers/g/offsets/t/0-0:null", "/consumers/g/offsets/t/00:1", "/consumers/g/offsets/t/0-0:9223372036854775808",
     "/consumers/g/owners/t/0-0:1", "/brokers/ids/0:1", " /consumers/g/offsets/t/0-0:1",
     "/consumers/g/offsets/t/0-0:1\n/consumers/g/offsets/t/0-0:2"],
)  # fmt: skip
def test_a_file_that_is_no_export_changes_nothing(run, client, tmp_path, line):
    (tmp_path / "file").write_text(f"/consumers/g/offsets/ok/0-0:1\n{line}\n")
    code, out, err = run("offsets", "import", tmp_path / "file", "--execute")
    assert (code, out) == (2, "") and " line " in err and err.count("\n") == 1
    assert client.exists("/consumers") is None


names = st.text(st.characters(codec="utf-8", exclude_characters="/", exclude_categories=["Cc"]), min_size=1)
numbers = st.integers(0, 2**31 - 1)


@settings(deadline=None)
@given(st.dictionaries(st.tuples(names, st.builds(TopicPartition, names, numbers, numbers)), st.integers(0, 2**63 - 1)))
def test_lines_come_back(given):
    text = "\n".join(format_line(group, tp, offset) for (group, tp), offset in given.items())
    parsed = {(group, tp): offset for group, found in parse_lines(text).items() for tp, offset in found.items()}
    assert parsed == given


# offsets: reset


def test_reset_shows_first_and_does_it_when_told(run, client, brokers):
    _, ends = brokers
    commit(client, "g", {"0-0": 7, "1-1": 0})
    code, out, err = run("offsets", "reset", "-g", "g", "-t", "clicks", "--to", "latest", "--json")
    assert code == 0 and "--execute" in err
    assert [(each["partition"], each["current_offset"], each["new_offset"]) for each in objects(out)] == [
        ("0-0", 7, ends["0-0"]), ("0-1", None, 0), ("1-0", None, 0), ("1-1", 0, ends["1-1"]),
    ]  # fmt: skip
    assert committed(client, "g") == {"0-0": b"7", "1-1": b"0"}
    assert run("offsets", "reset", "-g", "g", "--all-topics", "--to", "latest", "--execute")[0] == 0
    assert committed(client, "g") == {name: b"%d" % end for name, end in ends.items()}
    assert run("offsets", "reset", "-g", "g", "-t", "clicks", "-p", "1-1", "--to", "earliest", "--execute")[0] == 0
    assert committed(client, "g")["1-1"] == b"0" and committed(client, "g")["0-0"] == b"%d" % ends["0-0"]


def test_reset_to_an_offset(run, client, brokers):
    _, ends = brokers
    commit(client, "g", {"0-0": 0})
    one = ENTRY
    reset = ("offsets", "reset", "-g", "g", "-t", "clicks", "-p", "0-0", "--execute", "--to")
    assert run(*reset, one)[0] == 0 and committed(client, "g")["0-0"] == b"%d" % one
    assert run(*reset, ends["0-0"])[0] == 0 and committed(client, "g")["0-0"] == b"%d" % ends["0-0"]
    for wrong, reason in ((one + 1, "no message begins at offset"), (ends["0-0"] + 1, "it has 0 to")):
        code, out, err = run(*reset, wrong)
        assert (code, out) == (2, "") and reason in err and err.count("\n") == 1
    assert committed(client, "g")["0-0"] == b"%d" % ends["0-0"]


def test_a_group_with_members_is_left_alone(run, client, brokers, tmp_path):
    commit(client, "g", {"0-0": 7})
    client.create("/consumers/g/ids/g_m", b'{ "clicks": 1 }', ephemeral=True, makepath=True)
    (tmp_path / "file").write_text("/consumers/g/offsets/clicks/0-0:0\n")
    reset = ("offsets", "reset", "-g", "g", "-t", "clicks", "--to", "earliest")
    for command in (reset, ("offsets", "import", tmp_path / "file")):
        assert run(*command)[0] == 0  # to look is free
        code, out, err = run(*command, "--execute")
        assert (code, out) == (5, "") and "g_m" in err and "--force" in err
        assert committed(client, "g") == {"0-0": b"7"}
        assert run(*command, "--execute", "--force")[0] == 0
        assert committed(client, "g")["0-0"] == b"0"
        client.set("/consumers/g/offsets/clicks/0-0", b"7")
        for name in set(committed(client, "g")) - {"0-0"}:
            client.delete(f"/consumers/g/offsets/clicks/{name}")


def test_what_somebody_commits_meanwhile_is_not_overwritten(run, client, brokers, monkeypatch):
    commit(client, "g", {"0-0": 7, "1-1": 7})
    write = offsets._write

    def write_after_a_commit(*arguments):
        client.set("/consumers/g/offsets/clicks/1-1", b"22")
        write(*arguments)

    monkeypatch.setattr(offsets, "_write", write_after_a_commit)
    code, out, err = run("offsets", "reset", "-g", "g", "-t", "clicks", "--to", "earliest", "--execute")
    assert (code, out) == (5, "") and "clicks 1-1 changed just now" in err
    assert committed(client, "g") == {"0-0": b"7", "1-1": b"22"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(("-t", "nonsense", "--to", "latest"), "no broker has a topic 'nonsense'"),
     (("-t", "clicks", "-p", "5-5", "--to", "latest"), "there is no partition 5-5")],
)  # fmt: skip
def test_a_reset_of_what_is_not_there(run, client, brokers, arguments, reason):
    commit(client, "g", {"0-0": 7})
    code, out, err = run("offsets", "reset", "-g", "g", "--execute", *arguments)
    assert (code, out) == (2, "") and reason in err


@pytest.mark.parametrize(
    "arguments",
    [("offsets",), ("offsets", "reset", "-g", "g", "--to", "latest"), ("offsets", "reset", "-g", "g", "-t", "t"),
     ("offsets", "reset", "-g", "g", "-t", "t", "--to", "-1"),
     ("offsets", "reset", "-g", "g", "-t", "t", "--to", "9" * 19),
     ("offsets", "reset", "-g", "g", "-t", "t", "--all-topics", "--to", "latest"), ("lag",), ("verify-rebalance",)],
)  # fmt: skip
def test_a_wrong_command_line(run, arguments):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize("action", ["show", "export", "import", "reset"])
def test_each_action_has_an_example(action, capsys):
    with pytest.raises(SystemExit):
        main(["offsets", action, "--help"])
    assert f"  kafka07c offsets {action} " in capsys.readouterr().out.partition("example:\n")[2]


# ZooKeeper


@pytest.mark.parametrize("command", [("topics",), ("brokers",), ("groups",), ("lag", "-g", "g")])
def test_no_zookeeper(command, monkeypatch, capsys):
    monkeypatch.delenv("KAFKA07C_ZOOKEEPER", raising=False)
    assert main([*command]) == 2 and "give --zookeeper" in capsys.readouterr().err
    assert main([*command, "--zookeeper", "a b"]) == 2 and "is no ZooKeeper address" in capsys.readouterr().err


# cat -G


def cat(*arguments: str, zookeeper: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "kafka07c", "cat", "--zookeeper", zookeeper, "-G", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture
def ended():
    """Processes that are over when the test is."""
    processes: list[subprocess.Popen] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


PAYLOADS = sorted([b"payload %04d" % number for number in (*range(10), *range(20))])


def test_cat_of_a_group_to_the_end_and_no_message_twice(run, client, brokers):
    _, ends = brokers
    code, out, err = run("cat", "-G", "g", "clicks", "-e")
    assert (code, sorted(out.encode().splitlines())) == (0, PAYLOADS)
    assert "% Group g: this member has clicks 0-0, clicks 0-1, clicks 1-0, clicks 1-1\n" in err
    assert {name: int(offset) for name, offset in committed(client, "g").items() if int(offset)} == {
        name: end for name, end in ends.items() if end
    }
    assert run("cat", "-G", "g", "clicks", "-e", "-q") == (0, "", "")
    assert client.get_children("/consumers/g/ids") == []


def test_cat_of_a_group_counts(run, client, brokers):
    found = []
    for wanted in (1, 7, 2, 20):
        code, out, _ = run("cat", "-G", "g", "clicks", "-c", wanted, "-q")
        assert (code, len(out.splitlines())) == (0, wanted)
        found += out.encode().splitlines()
    assert sorted(found) == PAYLOADS


def test_cat_of_a_group_prints_like_cat(run, brokers):
    code, out, _ = run("cat", "-G", "g", "^cli.*", "-e", "-q", "-f", "%b-%p %o %s\\n")
    assert code == 0 and "1-1 0 payload 0000" in out.splitlines()
    shown = objects(run("cat", "-G", "h", "^.*", "--exclude", "other", "-e", "-q", "-J")[1])
    assert sorted(each["payload"].encode() for each in shown) == PAYLOADS
    assert run("cat", "-G", "i", "^.*", "--exclude", "clicks", "-e", "-q") == (0, "", "")


def test_cat_of_a_group_from_the_end(run, client, brokers):
    assert run("cat", "-G", "g", "clicks", "-e", "-q", "-o", "end")[:2] == (0, "")


def test_two_members_share_and_a_signal_ends_one_cleanly(client, hosts, brokers, ended):
    started, ends = brokers
    for _ in range(2):
        ended.append(cat("g", "clicks", "-f", "%b-%p %s\\n", zookeeper=hosts))
    until(lambda: len(owners(client, "g", "clicks")) == 4 and len(set(owners(client, "g", "clicks").values())) == 2)
    with SyncProducer("127.0.0.1", started[0].port) as producer:
        producer.send("clicks", 0, [b"later"])
    with SyncProducer("127.0.0.1", started[1].port) as producer:
        producer.send("clicks", 1, [b"later"])
    # broker 0's partitions are one member's, broker 1's the other's: each sees one of these
    seen: list[list[bytes]] = [[], []]
    threads = [
        threading.Thread(target=read_until_later, args=(process.stdout, lines)) for process, lines in zip(ended, seen)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert {lines[-1] for lines in seen} == {b"0-0 later", b"1-1 later"}

    ended[0].send_signal(signal.SIGTERM)
    assert ended[0].wait(30) == 0
    until(lambda: len(set(owners(client, "g", "clicks").values())) == 1)
    ended[1].send_signal(signal.SIGINT)
    assert ended[1].wait(30) == 0
    assert len({line for lines in seen for line in lines}) == 32
    assert {int(offset) for offset in committed(client, "g").values()} - {0} == {
        ends["0-0"] + len(b"later") + 10, ends["1-1"] + len(b"later") + 10,
    }  # fmt: skip


def read_until_later(stream, seen: list[bytes]) -> None:
    for line in iter(stream.readline, b""):
        seen.append(line.rstrip(b"\n"))
        if line.endswith(b"later\n"):
            return


def owners(client, group: str, topic: str) -> dict[str, bytes]:
    root = f"/consumers/{group}/owners/{topic}"
    try:
        return {name: client.get(f"{root}/{name}")[0] for name in client.get_children(root)}
    except NoNodeError:
        return {}


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.05)


def test_cat_of_a_group_with_a_damaged_partition_goes_on_with_the_others(client, hosts, brokers, tmp_path, ended):
    log = next((tmp_path / "0" / "clicks-0").glob("*.kafka"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1  # the last of the ten
    log.write_bytes(data)
    ended.append(cat("g", "clicks", "-e", "-q", zookeeper=hosts))
    out, err = ended[0].communicate(timeout=60)
    assert ended[0].returncode == 4 and len(out.splitlines()) == 29
    assert err and all(line.startswith(b"% group g: ") and b"corrupt entry" in line for line in err.splitlines())
    assert int(committed(client, "g")["0-0"]) == 9 * ENTRY


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [((), "needs topics"), (("t", "-p", "0-0"), "-p does not go"), (("t", "-b", "0:h:1"), "needs --zookeeper"),
     (("t", "-o", "5"), "offsets reset"), (("^a", "b"), "stands alone"), (("t", "--exclude", "a"), "goes with"),
     (("^(",), "is refused"), (("^a{1,2}",), "reads each comma")],
)  # fmt: skip
def test_cat_of_a_group_that_makes_no_sense(run, arguments, reason):
    code, out, err = run("cat", "-G", "g", *arguments)
    assert (code, out) == (2, "") and reason in err and err.count("\n") == 1


def test_cat_of_a_topic_takes_no_more_topics(run):
    code, _, err = run("cat", "-t", "a", "b")
    assert code == 2 and "go with -G" in err
