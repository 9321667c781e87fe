"""The options of the data source, and what they mean for what is there. No Spark runs here."""

from __future__ import annotations

import json
import re

import pytest

from kafka07c._build import build_message_set
from kafka07c.names import TopicPartition
from kafka07c.errors import OffsetOutOfRangeError, UnknownTopicError
from kafka07c.protocol import EARLIEST, LATEST
from kafka07c.spark.options import Assign, Offsets, OptionError, Subscribe, SubscribePattern, parse
from kafka07c.spark.planning import plan

LOGS = {"kafka07.logs": "0:/archive"}
CLICKS = LOGS | {"subscribe": "clicks"}


def tp(name: str) -> TopicPartition:
    topic, broker, partition = re.fullmatch(r"(\w+) (\d+)-(\d+)", name).groups()
    return TopicPartition(topic, int(broker), int(partition))


# --- parsing


def test_defaults_are_those_of_a_batch_query():
    parsed = parse(LOGS | {"subscribe": "clicks"})
    assert parsed.source == {"logs": "0:/archive"}
    assert parsed.subscription == Subscribe(("clicks",))
    assert parsed.starting == Offsets(everywhere=EARLIEST)
    assert parsed.ending == Offsets(everywhere=LATEST)
    assert parsed.fail_on_data_loss is True


def test_names_in_any_case():
    parsed = parse({"KAFKA07.Brokers": "0:127.0.0.1:9092", "SUBSCRIBE": "a", "failondataloss": "False"})
    assert parsed.source == {"brokers": "0:127.0.0.1:9092"}
    assert parsed.fail_on_data_loss is False


@pytest.mark.parametrize(
    "given, subscription",
    [
        ({"subscribe": " clicks, views,,clicks "}, Subscribe(("clicks", "views"))),
        ({"subscribePattern": "clicks.*"}, SubscribePattern(re.compile("clicks.*"))),
        ({"assign": '{"clicks": ["1-0", "0-1", "0-1"]}'}, Assign((tp("clicks 0-1"), tp("clicks 1-0")))),
    ],
)
def test_subscriptions(given, subscription):
    assert parse(LOGS | given).subscription == subscription


def test_offsets_by_partition():
    text = json.dumps({"clicks": {"0-1": 4711, "0-0": -2}, "views": {"1-0": 0}})
    starting = parse(LOGS | {"subscribe": "clicks", "startingOffsets": text}).starting
    assert starting == Offsets(by_partition={tp("clicks 0-1"): 4711, tp("clicks 0-0"): -2, tp("views 1-0"): 0})
    ending = parse(LOGS | {"subscribe": "clicks", "endingOffsets": '{"clicks": {"0-0": -1}}'}).ending
    assert (ending.of(tp("clicks 0-0")), Offsets(LATEST).of(tp("clicks 0-0"))) == (LATEST, LATEST)


@pytest.mark.parametrize(
    "given, said",
    [
        ({}, "exactly one of the options kafka07.zookeeper, kafka07.brokers, kafka07.logs: none is given"),
        (
            LOGS | {"kafka07.zookeeper": "a:1", "subscribe": "a"},
            "exactly one of .*: both kafka07.zookeeper and kafka07.logs are given",
        ),
        (LOGS, "exactly one of the options subscribe, subscribePattern, assign: none is given"),
        (LOGS | {"subscribe": "a", "assign": "{}"}, "both subscribe and assign are given"),
        ({"kafka07.logs": "/archive", "subscribe": "a"}, "option kafka07.logs: '/archive' is no log directory"),
        ({"kafka07.brokers": "a:1", "subscribe": "a"}, "option kafka07.brokers: 'a:1' is no broker"),
        ({"kafka07.zookeeper": "", "subscribe": "a"}, "option kafka07.zookeeper: "),
        (LOGS | {"subscribe": " "}, "option subscribe is empty"),
        (LOGS | {"subscribe": ", ,"}, "option subscribe .* names no topic"),
        (LOGS | {"subscribePattern": "a("}, r"option subscribePattern is 'a\(': no regular expression"),
        (LOGS | {"assign": "clicks"}, 'option assign is \'clicks\': expected JSON such as {"clicks"'),
        (LOGS | {"assign": "[1]"}, "option assign is '.1.': expected JSON"),
        (LOGS | {"assign": "{}"}, "names no partition"),
        (LOGS | {"assign": '{"clicks": {"0-0": 1}}'}, "option assign: topic 'clicks' has {'0-0': 1}, expected JSON"),
        (LOGS | {"assign": '{"clicks": [0]}'}, "option assign: topic 'clicks': '0' is no partition"),
        (CLICKS | {"startingOffsets": "newest"}, 'option startingOffsets is \'newest\': expected "earliest"'),
        (CLICKS | {"startingOffsets": "latest"}, "option startingOffsets: latest .* would read nothing"),
        (CLICKS | {"startingOffsets": '{"a": {"0-0": -1}}'}, "option startingOffsets: latest"),
        (CLICKS | {"endingOffsets": "EARLIEST"}, "option endingOffsets: earliest .* would read nothing"),
        (CLICKS | {"endingOffsets": '{"a": {"0-0": -2}}'}, "option endingOffsets: earliest"),
        (CLICKS | {"startingOffsets": '{"a": 5}'}, "option startingOffsets: topic 'a' has 5, expected"),
        (CLICKS | {"startingOffsets": '{"a": {"0": 5}}'}, "topic 'a': '0' is no partition"),
        (CLICKS | {"startingOffsets": '{"a": {"0-0": 1.5}}'}, "partition '0-0' has 1.5: expected an offset"),
        (CLICKS | {"startingOffsets": '{"a": {"0-0": true}}'}, "has True: expected an offset"),
        (CLICKS | {"startingOffsets": '{"a": {"0-0": -3}}'}, "has -3: expected an offset"),
        (CLICKS | {"startingOffsets": f'{{"a": {{"0-0": {2**63}}}}}'}, "expected an offset"),
        (CLICKS | {"failOnDataLoss": "no"}, "option failOnDataLoss is 'no': expected true or false"),
        (CLICKS | {"startingOffset": "earliest"}, "no option 'startingOffset': did you mean startingOffsets"),
        (CLICKS | {"groupIdPrefix": "a"}, "no option 'groupIdPrefix': there are kafka07.zookeeper"),
    ],
)
def test_wrong_options(given, said):
    with pytest.raises(OptionError, match=said) as raised:
        parse(given)
    assert "\n" not in str(raised.value)


# --- planning


@pytest.fixture
def archive(tmp_path):
    """clicks on brokers 0 and 1, views on broker 0; clicks 0-0 has the segments 30, 60 and 90."""
    logs = {"0/clicks-0": (30, 60, 90), "0/clicks-1": (0,), "0/views-0": (0,), "1/clicks-0": (0,)}
    for directory, starts in logs.items():
        (tmp_path / directory).mkdir(parents=True)
        for start in starts:
            (tmp_path / directory / f"{start:020d}.kafka").write_bytes(build_message_set([b"x" * 20]))
    (tmp_path / "0/empty-0").mkdir()
    return f"0:{tmp_path}/0,1:{tmp_path}/1"


def planned(archive: str, **given) -> list[str]:
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    parsed = parse({"kafka07.logs": archive} | given)
    return list(map(str, plan(parsed, parsed.open_source())))


def test_one_range_for_each_segment(archive):
    assert planned(archive, subscribe="views,clicks") == [
        "views 0-0 from 0 to 30",
        "clicks 0-0 from 30 to 60",
        "clicks 0-0 from 60 to 90",
        "clicks 0-0 from 90 to 120",
        "clicks 0-1 from 0 to 30",
        "clicks 1-0 from 0 to 30",
    ]


def test_pattern_matches_whole_names(archive):
    assert planned(archive, subscribePattern="view") == []
    assert planned(archive, subscribePattern="views?|nothing") == ["views 0-0 from 0 to 30"]


def test_assigned_partitions(archive):
    assert planned(archive, assign={"clicks": ["1-0"], "views": ["0-0"]}) == [
        "clicks 1-0 from 0 to 30",
        "views 0-0 from 0 to 30",
    ]


def test_nothing_to_read(archive):
    assert planned(archive, subscribe="empty") == []
    assert planned(archive, subscribe="views", startingOffsets={"views": {"0-0": 30}}) == []


def test_offsets_for_each_partition(archive):
    starting = {"clicks": {"0-0": 60, "0-1": -2, "1-0": 30}}
    ending = {"clicks": {"0-0": 95, "0-1": 30, "1-0": -1}}
    assert planned(archive, subscribe="clicks", startingOffsets=starting, endingOffsets=ending) == [
        "clicks 0-0 from 60 to 90",
        "clicks 0-0 from 90 to 95",
        "clicks 0-1 from 0 to 30",
    ]


@pytest.mark.parametrize(
    "given, error, said",
    [
        ({"subscribe": "nothing"}, UnknownTopicError, "has no topic 'nothing'; there: clicks, empty, views"),
        ({"assign": {"clicks": ["0-0", "0-7"]}}, UnknownTopicError, "option assign names what .* not have: clicks 0-7"),
        (
            {"subscribe": "clicks", "startingOffsets": {"clicks": {"0-0": 30}}},
            OptionError,
            "option startingOffsets has no offset for clicks 0-1, clicks 1-0",
        ),
        (
            {"subscribe": "views", "endingOffsets": {"views": {"0-0": 30, "0-1": 5}}},
            OptionError,
            "option endingOffsets has offsets for what this query does not read: views 0-1",
        ),
        (
            {
                "assign": {"clicks": ["0-0"]},
                "startingOffsets": {"clicks": {"0-0": 90}},
                "endingOffsets": {"clicks": {"0-0": 60}},
            },
            OptionError,
            "clicks 0-0: startingOffsets has 90, which is after 60 in endingOffsets",
        ),
    ],
)
def test_options_that_do_not_fit(archive, given, error, said):
    with pytest.raises(error, match=said):
        planned(archive, **given)


@pytest.mark.parametrize(
    "starting, ending, left",
    [
        (0, -1, ["clicks 0-0 from 30 to 60", "clicks 0-0 from 60 to 90", "clicks 0-0 from 90 to 120"]),
        (90, 150, ["clicks 0-0 from 90 to 120"]),
        (200, -1, []),
        (-2, 10, []),
        (200, 300, []),
    ],
)
def test_offsets_that_are_gone(archive, starting, ending, left):
    given = {
        "assign": {"clicks": ["0-0"]},
        "startingOffsets": {"clicks": {"0-0": starting}},
        "endingOffsets": {"clicks": {"0-0": ending}},
    }
    with pytest.raises(OffsetOutOfRangeError, match="'clicks', broker 0, partition 0.* the partition has 30 to 120"):
        planned(archive, **given)
    assert planned(archive, **given, failOnDataLoss="false") == left
