"""Ends of transactions and answers to requests that match nothing."""

import pytest

from rocketpy.proto.record.message_id import decode_message_id
from tests.bad_input.kit import Wire, World

COMMIT, ROLLBACK = "8", "12"
PROPERTIES = "TRAN_MSG\x01true\x02PGROUP\x01P\x02"


def _half(peer: Wire, topic: str) -> dict[str, str]:
    """Store a half message and return the end that commits it."""
    response = peer.send(b"half", topic, i=PROPERTIES, f="4")
    assert response.code == 0, response.remark
    phy_offset = decode_message_id(response.ext_fields["msgId"]).phy_offset
    return {
        "producerGroup": "P",
        "tranStateTableOffset": response.ext_fields["queueOffset"],
        "commitLogOffset": str(phy_offset),
        "commitOrRollback": COMMIT,
        "msgId": response.ext_fields["transactionId"],
        "fromTransactionCheck": "false",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("producerGroup", "Other"),
        ("tranStateTableOffset", "999999"),
        ("tranStateTableOffset", "-1"),
        ("commitLogOffset", "0"),
        ("commitLogOffset", "-5"),
        ("commitLogOffset", "9223372036854775807"),
    ],
)
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_end_that_does_not_match(world: World, field: str, value: str, decision: str) -> None:
    topic = f"End{decision}{field}{len(value)}"
    with world.staying_well(), world.peer() as peer:
        end = _half(peer, topic)
        response = peer.call(37, {**end, "commitOrRollback": decision, field: value})
        assert response.code == 1
        assert response.remark
        assert peer.call(37, end).code == 0, "the half is still open"
        assert peer.bodies(topic) == [b"half"]


@pytest.mark.parametrize("group", ["DEFAULT_GROUP", "DEFAULT_PRODUCER"])
def test_group_that_everybody_shares(world: World, group: str) -> None:
    """A broker takes it, as Apache's does; our client refuses to begin."""
    topic = f"Shared{group}"
    with world.staying_well(), world.peer() as peer:
        half = peer.send(b"half", topic, i=f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02", f="4")
        assert half.code == 0
        end = {
            "producerGroup": group,
            "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": str(decode_message_id(half.ext_fields["msgId"]).phy_offset),
            "commitOrRollback": COMMIT,
            "msgId": half.ext_fields["transactionId"],
            "fromTransactionCheck": "false",
        }
        assert peer.call(37, {**end, "producerGroup": "P"}).code == 1
        assert peer.call(37, end).code == 0
        assert peer.bodies(topic) == [b"half"]


def test_end_for_a_message_that_is_no_half(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        end = _half(peer, "EndPlain")
        sent = peer.send(b"plain", "EndPlain", i="PGROUP\x01P\x02REAL_TOPIC\x01EndPlain\x02")
        place = decode_message_id(sent.ext_fields["msgId"]).phy_offset
        offset = sent.ext_fields["queueOffset"]
        forged = {**end, "commitLogOffset": str(place), "tranStateTableOffset": offset}
        assert peer.call(37, forged).code == 1
        assert peer.bodies("EndPlain") == [b"plain"]


def test_end_that_comes_twice_or_otherwise(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        end = _half(peer, "EndTwice")
        assert [peer.call(37, end).code for _ in range(3)] == [0, 0, 0]
        assert peer.call(37, {**end, "commitOrRollback": ROLLBACK}).code == 1
        dropped = _half(peer, "EndTwice")
        assert peer.call(37, {**dropped, "commitOrRollback": ROLLBACK}).code == 0
        assert peer.call(37, dropped).code == 1, "a commit after a rollback"
        assert peer.bodies("EndTwice") == [b"half"]


@pytest.mark.parametrize("decision", ["0", "4", "7", "-1"])
def test_end_that_decides_nothing(world: World, decision: str) -> None:
    with world.staying_well(), world.peer() as peer:
        end = _half(peer, f"EndNothing{decision}")
        assert peer.call(37, {**end, "commitOrRollback": decision}).code == 0
        assert peer.call(37, end).code == 0


def test_half_message_without_producer_group_is_refused(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        no_group = peer.send(b"x", "EndNobody", i="TRAN_MSG\x01true\x02", f="4")
        assert no_group.code == 13
        assert "PGROUP" in (no_group.remark or "")
        assert peer.send(b"x", "EndNobody", f="4").code == 13, "the flag without the property"


def test_reply_without_request_is_refused(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        topic = "DefaultCluster_REPLY_TOPIC"
        for properties in ("", "REPLY_TO_CLIENT\x01nobody\x02CORRELATION_ID\x011\x02"):
            ext = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0"}
            ext |= {"g": "1", "h": "0", "i": properties}
            response = peer.call(325, ext, b"answer")
            assert response.code == 1
            assert "REPLY_TO_CLIENT" in (response.remark or "") or "nobody" in (
                response.remark or ""
            )
