"""Everything that was recorded from a real 0.7.2 broker, once more against ours: the same bytes, the same hang-ups."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker_client import Wire, log_end
from kafka07c.broker import Broker, handlers

GOLDEN = Path(__file__).parent / "golden07"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
EXCHANGES = MANIFEST["exchanges"]

#: the settings in manifest["brokers"], which has them as text
A = {
    "num.partitions": 2,
    "log.flush.interval": 1,
    "max.message.size": 10000,
    "topic.log.file.size": "seg:300,seggz:200",
}
C = {
    "num.partitions": 1,
    "log.flush.interval": 10000,
    "log.default.flush.interval.ms": 4000,
    "log.default.flush.scheduler.interval.ms": 4000,
}

RANDOM_PARTITION = 25
SILENT = 91
LOG_START = range(201, 206)
UNFLUSHED = range(206, 213)
FIRST_FLUSHED = 210
CORRUPT = range(213, 216)

#: number 177 asks at its present time, and the answer says that the broker's clock was past it
ASKED_NOW_MS = next(e for e in EXCHANGES if e["id"] == 177)["request"]["time"]
RECORDED_SEGMENTS = next(e for e in EXCHANGES if "segments" in e)


@dataclass
class Outcome:
    """What our broker did with one exchange."""

    response: bytes
    closed: bool
    ends_before: dict[str, int]
    ends_after: dict[str, int]


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def ends(port: int, expected: dict[str, int | None]) -> dict[str, int]:
    """The log ends that the recording has numbers for."""
    found = {}
    for name, end in expected.items():
        if end is not None:
            topic, _, partition = name.rpartition("-")
            found[name] = log_end(port, topic, int(partition))
    return found


def exchange_with(broker: Broker, exchange: dict) -> Outcome:
    request = golden(exchange["request_file"])
    before = ends(broker.port, exchange.get("log_end_before", {}))
    with Wire(broker.port) as wire:
        if exchange["connection_after"] == "closed":
            wire.send_to_closing(request)
            response, closed = wire.read_to_end(), True
        elif exchange["id"] == SILENT:
            response, closed = whole_silent_request(wire, request)
        else:
            wire.send(request)
            # an answer to what was not asked for would stand here before the one to the probe
            response = wire.read_response() if "response_file" in exchange else b""
            closed = not wire.offsets("probe", 0, max_offsets=1) == [0]
    return Outcome(response, closed, before, ends(broker.port, exchange.get("log_end_after", {})))


def whole_silent_request(wire: Wire, size_field: bytes) -> tuple[bytes, bool]:
    """A size field at the limit, and nothing after it: that the broker still listens shows when the body comes."""
    wire.send(size_field)
    fetch = golden("wire/101-fetch-plain-at-end.request.bin")[4:]
    wire.send(fetch + bytes(int.from_bytes(size_field) - len(fetch)))
    assert wire.read_response() == golden("wire/101-fetch-plain-at-end.response.bin")
    return b"", wire.offsets("probe", 0, max_offsets=1) != [0]


def replay_a(directory: Path, outcomes: dict[int, Outcome]) -> None:
    # The clock stands a second after number 177 was asked; the offsets by time are compared with the times that the
    # segment files had in the recording.
    clock = ASKED_NOW_MS / 1000 + 1
    with Broker(directory, properties=A, clock=lambda: clock) as broker:
        for exchange in EXCHANGES:
            if exchange["broker"] != "A":
                continue
            if exchange["id"] == 177:
                for segment in RECORDED_SEGMENTS["segments"]:
                    ns = segment["last_modified_ms"] * 1_000_000
                    os.utime(directory / "seg-0" / segment["file"], ns=(ns, ns))
            outcomes[exchange["id"]] = exchange_with(broker, exchange)


def replay_c(directory: Path, ids: range, outcomes: dict[int, Outcome]) -> None:
    # The clock stands, so that no time-out flushes a log before the exchange that comes after the flush.
    with Broker(directory, properties=C, clock=lambda: 0.0) as broker:
        for exchange in EXCHANGES:
            if exchange["id"] in ids:
                if exchange["id"] == FIRST_FLUSHED:
                    broker.flush()
                outcomes[exchange["id"]] = exchange_with(broker, exchange)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory) -> tuple[dict[int, Outcome], Path]:
    """All exchanges, in the order of their numbers, on the broker named; and broker A's log directory."""
    parent = tmp_path_factory.mktemp("replay")
    outcomes: dict[int, Outcome] = {}
    replay_a(parent / "a", outcomes)
    shutil.copytree(GOLDEN / "start" / "rec-gap-0", parent / "c" / "rec-gap-0")
    replay_c(parent / "c", LOG_START, outcomes)
    replay_c(parent / "c", UNFLUSHED, outcomes)
    shutil.copytree(GOLDEN / "recovery" / "clean-shutdown" / "clean2-0", parent / "clean" / "clean2-0")
    (parent / "clean" / ".kafka_cleanshutdown").touch()
    replay_c(parent / "clean", CORRUPT, outcomes)
    return outcomes, parent / "a"


def test_the_recording_is_the_one_that_is_replayed():
    assert len(EXCHANGES) == 212
    assert [e["id"] for e in EXCHANGES] == sorted(e["id"] for e in EXCHANGES)
    for name, settings in (("A", A), ("C", C)):
        for key, value in settings.items():
            assert f"{key}={value}" in MANIFEST["brokers"][name]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=[f"{e['id']:03d}-{e['name']}" for e in EXCHANGES])
def test_exchange(replayed, exchange):
    outcome = replayed[0][exchange["id"]]
    expected = golden(exchange["response_file"]) if "response_file" in exchange else b""
    assert outcome.response == expected
    assert outcome.closed == (exchange["connection_after"] == "closed")
    for found, recorded in (
        (outcome.ends_before, exchange.get("log_end_before", {})),
        (outcome.ends_after, exchange.get("log_end_after", {})),
    ):
        if exchange["id"] == RANDOM_PARTITION:
            assert sorted(found.values()) == sorted(recorded.values())
        else:
            assert found == {name: end for name, end in recorded.items() if end is not None}


#: cset-0 belongs to the consumer's runs (manifest["consumer_commits"]); no exchange writes it
SEGMENTS = [s["file"] for s in MANIFEST["segments"] if s["file"] != MANIFEST["consumer_commits"]["log"]]


@pytest.mark.parametrize("recorded", SEGMENTS)
def test_segments_that_were_written(replayed, recorded):
    written = replayed[1] / recorded.removeprefix("logs/")
    assert written.read_bytes() == golden(recorded)


def test_no_segment_was_written_that_the_real_broker_did_not_write(replayed):
    recorded = {name.removeprefix("logs/") for name in SEGMENTS}
    topics = {name.rpartition("-")[0] for name in (path.split("/")[0] for path in recorded)}
    for path in replayed[1].glob("*/*.kafka"):
        if path.parent.name.rpartition("-")[0] in topics:
            assert f"{path.parent.name}/{path.name}" in recorded


# The real clients' connections. Their log began empty; the recorded answers show where the random sets went: to
# partition 1, all of them.

CONVERSATIONS = [
    "sync-conn01",
    "simple-conn01",
    "async-conn01",
    "reconnect-conn01",
    "reconnect-conn02",
    "reconnect-conn03",
    "zkconsumer-conn01",
    "zkconsumer-conn02",
    "zkconsumer-conn03",
    "zkconsumer-conn04",
]


@pytest.fixture(scope="module")
def conversations(tmp_path_factory) -> tuple[dict[str, bytes], Path]:
    """What our broker said on each connection, and its log directory."""
    directory = tmp_path_factory.mktemp("conversations") / "logs"
    said = {}
    with pytest.MonkeyPatch.context() as patch, Broker(directory, properties=A) as broker:
        patch.setattr(handlers, "pick_partition", lambda count: 1)
        for name in CONVERSATIONS:
            said[name] = converse(broker, name)
    return said, directory


def converse(broker: Broker, name: str) -> bytes:
    """Play one connection in the order in which its bytes were seen."""
    sent, said = golden(f"transcripts/{name}.c2s.bin"), b""
    with Wire(broker.port) as wire:
        for direction, event, count in json.loads(golden(f"transcripts/{name}.events.json")):
            if event == "data" and direction == "c2s":
                wire.send(sent[:count])
                sent = sent[count:]
            elif event == "data":
                said += wire.read(count)
            elif direction == "c2s":
                wire.socket.shutdown(1)
        said += wire.read_to_end()
    assert not sent
    return said


def test_all_recorded_conversations_are_played():
    assert sorted(CONVERSATIONS) == sorted(p.name[: -len(".c2s.bin")] for p in GOLDEN.glob("transcripts/*.c2s.bin"))


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation(conversations, name):
    assert conversations[0][name] == golden(f"transcripts/{name}.s2c.bin")


def test_the_log_that_the_real_producers_wrote(conversations):
    # partition by partition what the producers' requests carried, read back by the recorded consumer up to its end
    recorded = golden("transcripts/zkconsumer-conn03.s2c.bin")
    ones, zeros = recorded[12 : 12 + 256], recorded[12 + 256 + 6 : 12 + 256 + 6 + 243]
    for partition, read_back in ((0, zeros), (1, ones)):
        log = (conversations[1] / f"real-{partition}" / f"{0:020d}.kafka").read_bytes()
        assert log.startswith(read_back)
        assert log[len(read_back) :].count(b"async-") == (6, 4)[partition]


# Recovery

RECOVERY = [case for case in MANIFEST["recovery"] if case["before"].startswith("recovery/before/")]


@pytest.fixture(scope="module")
def recovered(tmp_path_factory) -> tuple[Path, list]:
    """A log directory with all the damaged logs, after a start of the broker without the mark of a clean stop."""
    directory = tmp_path_factory.mktemp("recovery") / "logs"
    shutil.copytree(GOLDEN / "recovery" / "before", directory)
    with Broker(directory) as broker:
        reports = broker.recovered
    return directory, reports


@pytest.mark.parametrize("case", RECOVERY, ids=[case["case"] for case in RECOVERY])
def test_recovery_leaves_what_the_real_broker_left(recovered, case):
    directory, reports = recovered
    log = Path(case["after"]).parent.name
    assert (directory / log / Path(case["after"]).name).read_bytes() == golden(case["after"])
    before = golden(case["before"])
    cut = [report for report in reports if report.path.parent.name == log]
    if not case["truncated"]:
        assert cut == []
        return
    (report,) = cut
    assert (report.kept_bytes, report.cut_bytes) == (case["after_bytes"], case["truncated"])
    assert report.copy.read_bytes() == before[case["after_bytes"] :]


def test_recovery_leaves_all_but_the_last_segment_alone(tmp_path):
    damaged = GOLDEN / "recovery" / "clean-shutdown" / "rec-multi-0"
    shutil.copytree(damaged, tmp_path / "rec-multi-0")
    with Broker(tmp_path) as broker:
        assert broker.recovered == []
    for path in damaged.iterdir():
        assert (tmp_path / "rec-multi-0" / path.name).read_bytes() == path.read_bytes()


def test_after_a_clean_stop_nothing_is_recovered(tmp_path):
    shutil.copytree(GOLDEN / "recovery" / "before", tmp_path, dirs_exist_ok=True)
    (tmp_path / ".kafka_cleanshutdown").touch()
    with Broker(tmp_path) as broker:
        assert broker.recovered == []
    for case in RECOVERY:
        log = Path(case["before"]).parent.name
        assert (tmp_path / log / Path(case["before"]).name).read_bytes() == golden(case["before"])


