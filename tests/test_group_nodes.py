"""A group's nodes in the real ZooKeeper: the same paths and bytes as recorded, owners, and offsets that are fenced."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from kafka07c.names import TopicPartition
from kafka07c.errors import CommitFailedError, ZooKeeperError
from kafka07c.positions import Position
from kafka07c.zookeeper.groups import (
    GroupPaths,
    check_name,
    list_groups,
    make_member_id,
    read_members,
    read_offsets,
    read_owners,
)
from kafka07c.zookeeper.members import GroupNodes
from kafka07c.zookeeper.offsets import OffsetStore

pytestmark = pytest.mark.zookeeper

GOLDEN = Path(__file__).parent / "golden07"
A, B = TopicPartition("clicks", 0, 0), TopicPartition("clicks", 0, 1)
PATHS = GroupPaths("g")


class Changes(list):
    """What a member's watches and listener were told."""

    def options(self):
        return {"on_state": self.append, "on_change": self.append, "session_timeout": 2.0, "connect_timeout": 10.0}


@pytest.fixture
def member(hosts):
    """Makes members of group g."""
    made = []

    def make(member_id="g_me"):
        made.append(GroupNodes(hosts, "g", member_id, **Changes().options()))
        return made[-1]

    yield make
    for nodes in made:
        nodes.close()


@pytest.fixture(params=["transactions", "versions"])
def owner(request, member):
    """A member that owns A and B, with either way of committing."""
    nodes = member()
    own(nodes, request.param == "transactions")
    return nodes


def own(nodes, transactions=True):
    assert nodes.register(b'{ "clicks": 1 }') is None
    assert nodes._transactions  # the server in pyspark's jars is a new one
    nodes._transactions = transactions  # as if it had said that it is 3.3: then no transaction is sent
    assert nodes.claim({A: f"{nodes.member_id}-0", B: f"{nodes.member_id}-0"}) == {}
    return nodes.take_over([A, B])


def put(client, path, data, **options):
    client.create(path, data, makepath=True, **options)


# Names


def test_a_member_id_is_made_as_recorded():
    assert re.fullmatch(r"golden_.+-[0-9]{13}-[0-9a-f]{8}", make_member_id("golden"))
    assert make_member_id("golden-black", "fixed-id") == "golden-black_fixed-id"
    assert make_member_id("g") != make_member_id("g")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "a\nb", "\x80", "\ud800", "\ufff0", "\U0001f600"])
def test_names_that_zookeeper_does_not_take(name):
    with pytest.raises(ValueError, match="cannot be a group"):
        check_name(name, "group")


@pytest.mark.parametrize("name", ["g", "a b", "ünïcode-☃", "a..b"])
def test_names_that_zookeeper_takes(client, name):
    client.create(f"/{check_name(name, 'group')}")


# Reading what was recorded


def test_recorded_groups_are_read(client):
    for node in json.loads((GOLDEN / "zk/2-two-consumers-static-and-whitelist.json").read_text()):
        if node["path"].startswith("/consumers"):
            data = base64.b64decode(node["data_base64"]) if node["data"] is not None else None
            client.create(node["path"], data)
    first, second = "golden_vm-1795170363144-438935b1", "golden_vm-1795170368335-a24a820f"
    assert list_groups(client) == ["golden", "golden-black"]
    assert read_members(client, "golden") == {first: b'{ "plain": 2,"gzip": 1 }', second: b"*2*plain|snappy|mixed"}
    owners = {f"{tp}": owner.thread for tp, owner in read_owners(client, "golden").items()}
    assert len(owners) == 12
    assert owners["gzip 0-1"] == f"{first}-0"
    assert owners["plain 1-1"] == f"{second}-1"
    offsets = read_offsets(client, "golden")
    assert len(offsets) == 12
    assert offsets[TopicPartition("snappy", 0, 0)] == Position(13340)
    assert read_offsets(client, "golden-black") == {} == read_owners(client, "no such group")


@pytest.mark.parametrize(
    "data", [None, b"", b"-1", b"+1", b" 1", b"1.5", b"1_0", b"x", b"9" * 19, b"9" * 5000, b"\xff"]
)
def test_what_is_no_offset_hides_no_others(client, data, caplog):
    put(client, PATHS.offset(A), data)
    put(client, PATHS.offset(B), b"7")
    put(client, f"{PATHS.offsets}/clicks/nonsense", b"7")
    assert read_offsets(client, "g") == {B: Position(7)}
    assert PATHS.offset(A) in caplog.text


# Membership


def test_the_nodes_hold_the_bytes_that_0_7_writes(owner, client):
    owner.commit({A: Position(6721)})
    assert client.get(PATHS.member("g_me"))[0] == b'{ "clicks": 1 }'
    assert client.get(PATHS.owner(A))[0] == b"g_me-0"
    assert client.get(PATHS.offset(A))[0] == b"6721"
    paths = [PATHS.member("g_me"), PATHS.owner(A), PATHS.offset(A)]
    assert [client.get(path)[1].ephemeralOwner != 0 for path in paths] == [True, True, False]
    assert not client.exists(f"{PATHS.root}/kafka07c")


def test_parents_that_are_missing_hold_the_id_of_who_made_them(owner, client):
    owner.commit({A: Position(1, 2)})
    for path in ("/consumers", PATHS.root, PATHS.ids, f"{PATHS.owners}/clicks", f"{PATHS.offsets}/clicks",
                 f"{PATHS.root}/kafka07c/offsets/clicks"):  # fmt: skip
        assert client.get(path)[0] == b"g_me", path


def test_an_id_of_another_session_is_in_the_way_until_that_ends(member, client):
    put(client, PATHS.member("g_me"), b'{ "clicks": 1 }', ephemeral=True)  # the very bytes that we would write
    nodes = member()
    assert nodes.register(b'{ "clicks": 1 }') == client.client_id[0]
    assert not nodes.is_registered()
    client.delete(PATHS.member("g_me"))
    assert nodes.register(b'{ "clicks": 1 }') is None
    assert nodes.is_registered()


def test_registering_again_with_another_subscription(member, client):
    nodes = member()
    nodes.register(b'{ "clicks": 1 }')
    nodes.register(b'{ "clicks": 2 }')
    assert client.get(PATHS.member("g_me"))[0] == b'{ "clicks": 2 }'


# Owners


def test_a_claim_goes_by_the_session_not_by_the_data(member, client):
    put(client, PATHS.owner(A), b"g_me-0", ephemeral=True)  # as a dead session of ours would have left it
    nodes = member()
    nodes.register(b"")
    held = nodes.claim({A: "g_me-0", B: "g_me-0"})
    assert {tp: owner.session for tp, owner in held.items()} == {A: client.client_id[0]}
    assert client.get(PATHS.owner(B))[0] == b"g_me-0"


def test_claiming_again_what_is_ours(owner, client):
    assert owner.claim({A: "g_me-0", B: "g_me-1"}) == {}
    assert client.get(PATHS.owner(B))[0] == b"g_me-1"
    assert not owner.commit({B: Position(1)}).refused  # it knows the version that the node has now


def test_only_our_own_owner_nodes_are_deleted(owner, client):
    client.delete(PATHS.owner(A))
    put(client, PATHS.owner(A), b"g_me-0", ephemeral=True)  # with our data, but another's
    owner.release([A, B])
    assert client.get(PATHS.owner(A))[1].ephemeralOwner == client.client_id[0]
    assert not client.exists(PATHS.owner(B))


def test_nothing_is_claimed_without_an_id(member, client):
    nodes = member()
    own(nodes)
    nodes.release([A, B])
    client.delete(PATHS.member("g_me"))
    with pytest.raises(ZooKeeperError, match="claiming partitions failed"):
        nodes.claim({A: "g_me-0"})
    assert not client.exists(PATHS.owner(A))


# Offsets


def test_what_is_committed_is_where_the_next_owner_goes_on(owner, member, client):
    assert owner.committed([A, B]) == {A: None, B: None}
    written = owner.commit({A: Position(80, 3), B: Position(142)})
    assert not (written.moved or written.refused or written.failed)
    owner.close()
    assert own(member("g_you")) == {A: Position(80, 3), B: Position(142)}


def test_the_index_survives_a_takeover_that_commits_nothing(owner, member):
    owner.commit({A: Position(80, 3)})
    owner.close()
    second = member("g_second")
    own(second)
    second.close()
    assert own(member("g_third"))[A] == Position(80, 3)


def test_the_index_holds_only_while_the_offset_node_is_as_we_wrote_it(owner, client):
    owner.commit({A: Position(80, 3)})
    assert read_offsets(client, "g")[A] == Position(80, 3)
    client.set(PATHS.offset(A), b"80")  # a JVM member has committed: it is at the entry's start again
    assert read_offsets(client, "g")[A] == Position(80)


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{", b"[]", b"7", b'{"offset": 80, "version": 0}', b'{"offset": 80, "version": 0, "index": "1"}',
     b'{"offset": 80, "version": 0, "index": -1}', b'{"offset": 80, "version": 0, "index": true}',
     b'{"offset": 80, "version": 1, "index": 1}', b'{"offset": 81, "version": 0, "index": 1}', b'{"a":' * 100_000],
)  # fmt: skip
def test_a_node_of_ours_that_makes_no_sense_is_no_index(client, data):
    put(client, PATHS.offset(A), b"80")
    put(client, PATHS.inner(A), data)
    assert read_offsets(client, "g") == {A: Position(80)}
    client.set(PATHS.inner(A), b'{"offset": 80, "version": 0, "index": 1}')
    assert read_offsets(client, "g") == {A: Position(80, 1)}


def test_an_offset_that_somebody_changed_is_left_alone_and_told(owner, client):
    owner.commit({A: Position(100), B: Position(100)})
    client.set(PATHS.offset(A), b"40")
    written = owner.commit({A: Position(200), B: Position(200)})
    assert written.moved == {A: Position(40)}
    assert [client.get(PATHS.offset(tp))[0] for tp in (A, B)] == [b"40", b"200"]
    assert not owner.commit({A: Position(60)}).moved  # adopted: now it is known
    assert client.get(PATHS.offset(A))[0] == b"60"


def test_an_offset_that_somebody_made_first_is_told(owner, client):
    put(client, PATHS.offset(A), b"40")
    assert owner.commit({A: Position(200)}).moved == {A: Position(40)}
    assert client.get(PATHS.offset(A))[0] == b"40"


def test_an_offset_that_somebody_deleted_is_told_once(owner, client):
    owner.commit({A: Position(100)})
    client.delete(PATHS.offset(A))
    assert owner.commit({A: Position(200)}).moved == {A: None}
    assert not client.exists(PATHS.offset(A))
    assert not owner.commit({A: Position(10)}).moved
    assert client.get(PATHS.offset(A))[0] == b"10"


def test_an_offset_that_was_rewritten_unchanged_is_nobodys_reset(owner, client):
    owner.commit({A: Position(100)})
    client.set(PATHS.offset(A), b"100")
    assert not owner.commit({A: Position(200)}).moved
    assert client.get(PATHS.offset(A))[0] == b"200"


def test_a_commit_whose_answer_was_lost_is_known_again(owner, client):
    owner.commit({A: Position(100)})
    owner._offsets._known[A].tried.add(b"150")
    client.set(PATHS.offset(A), b"150")  # it did arrive
    assert not owner.commit({A: Position(200)}).moved
    assert client.get(PATHS.offset(A))[0] == b"200"


def test_who_lost_a_partition_cannot_commit_it_any_more(owner, member, client):
    owner.commit({A: Position(100), B: Position(100)})
    client.delete(PATHS.owner(A))  # somebody's hand; our session lives and knows nothing
    other = member("g_other")
    other.register(b"")
    assert other.claim({A: "g_other-0"}) == {}
    assert other.take_over([A]) == {A: Position(100)}
    written = owner.commit({A: Position(90), B: Position(110)})
    assert written.refused == {A}
    assert [client.get(PATHS.offset(tp))[0] for tp in (A, B)] == [b"100", b"110"]
    assert not other.commit({A: Position(120)}).moved


def test_in_a_transaction_the_owner_is_checked_even_if_the_next_one_fences_nothing(member, client):
    nodes = member()
    own(nodes)
    nodes.commit({A: Position(100)})
    client.delete(PATHS.owner(A))  # a JVM member takes it next: it rewrites nothing
    assert nodes.commit({A: Position(90)}).refused == {A}
    assert client.get(PATHS.offset(A))[0] == b"100"


def test_in_a_transaction_the_id_is_checked(member, client):
    nodes = member()
    own(nodes)
    client.delete(PATHS.member("g_me"))
    assert nodes.commit({A: Position(90)}).refused == {A}
    assert not client.exists(PATHS.offset(A))


def test_a_thousand_partitions_in_one_go(member):
    nodes = member()
    nodes.register(b"")
    partitions = [TopicPartition("many", 0, number) for number in range(1000)]
    assert nodes.claim(dict.fromkeys(partitions, "g_me-0")) == {}
    assert set(nodes.take_over(partitions).values()) == {None}
    written = nodes.commit({tp: Position(tp.partition, 1) for tp in partitions})
    assert not (written.moved or written.refused or written.failed)
    assert nodes.committed(partitions) == {tp: Position(tp.partition, 1) for tp in partitions}
    nodes.release(partitions)
    assert set(nodes.owners(partitions).values()) == {None}


# OffsetStore


def test_a_store_commits_without_owning_anything(hosts, client):
    with OffsetStore(hosts, "g") as store:
        assert store.committed([A]) == {A: None}
        store.commit({A: Position(5, 1)})
        assert store.committed([A, B]) == {A: Position(5, 1), B: None}
    assert client.get(PATHS.offset(A))[0] == b"5"


def test_a_store_overwrites_what_it_sees_first_but_not_what_changes_afterwards(hosts, client):
    put(client, PATHS.offset(A), b"40")
    with OffsetStore(hosts, "g") as store:
        store.commit({A: Position(50)})
        client.set(PATHS.offset(A), b"7")
        with pytest.raises(CommitFailedError, match="group g: not committed: .*clicks 0-0 to 7") as caught:
            store.commit({A: Position(60), B: Position(1)})
        assert (caught.value.moved, caught.value.lost) == ({A: Position(7)}, [])
        assert store.committed([A, B]) == {A: Position(7), B: Position(1)}


def test_a_store_without_a_zookeeper():
    store = OffsetStore("127.0.0.1:1", "g", connect_timeout=0.3)
    with pytest.raises(ZooKeeperError, match="^ZooKeeper at 127.0.0.1:1"):
        store.committed([A])
    store.close()
