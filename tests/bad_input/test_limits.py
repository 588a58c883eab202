"""Numbers and sizes beyond the limits of a request."""

import struct
import time

import orjson
import pytest

from rocketpy.proto.recall_handle import RecallHandle
from rocketpy.proto.record.message import BatchItem, encode_batch
from tests.bad_input.kit import World, send_header

BODY_LIMIT = 4 << 20


def test_body_over_the_limit(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        assert peer.send(bytes(BODY_LIMIT)).code == 0
        response = peer.send(bytes(BODY_LIMIT + 1))
        assert response.code == 13
        assert str(BODY_LIMIT) in (response.remark or "")
        assert peer.send(bytes(BODY_LIMIT + 1), i="UNIQ_KEY\1u\2").code == 13


def test_properties_over_the_limit(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        for name in ("big\1", "UNIQ_KEY\1u\2big\1"):
            assert peer.send(b"x", i=f"{name}{'x' * 40_000}\2").code == 13


@pytest.mark.parametrize("queue_id", [99, 2**31 - 1])
def test_send_to_a_queue_that_is_not_there(world: World, queue_id: int) -> None:
    with world.staying_well(), world.peer() as peer:
        for properties in ("", "UNIQ_KEY\1u\2"):
            response = peer.send(b"x", e=str(queue_id), i=properties)
            assert response.code == 29
            assert str(queue_id) in (response.remark or "")


@pytest.mark.parametrize("queue_id", [-1, 99, 2**31 - 1])
def test_pull_from_a_queue_that_is_not_there(world: World, queue_id: int) -> None:
    with world.staying_well(), world.peer() as peer:
        response = peer.pull(0, queueId=str(queue_id))
        assert response.code == 29
        assert str(queue_id) in (response.remark or "")


def test_pull_outside_the_queue(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        peer.send(b"x", e="1")
        for offset in (-1, -(2**63), 2**63 - 1):
            response = peer.pull(offset, queueId="1")
            assert response.code == 21
            assert int(response.ext_fields["nextBeginOffset"]) >= 0


@pytest.mark.parametrize("count", [-1, 0, -(2**31), 2**31 - 1])
def test_pull_of_an_odd_number_of_messages(world: World, count: int) -> None:
    with world.staying_well(), world.peer() as peer:
        peer.send(b"x", e="1")
        assert peer.pull(0, queueId="1", maxMsgNums=str(count)).code == 0


def test_pull_that_wants_to_wait_for_ever_is_held_no_longer_than_allowed(world: World) -> None:
    """The hold is limited, and a closed connection drops its pull."""
    with world.staying_well(), world.peer() as peer:
        from rocketpy.proto.wire.command import encode_command  # noqa: PLC0415
        from tests.bad_input.kit import pull_header  # noqa: PLC0415

        ext = {**pull_header(), "queueId": "3", "sysFlag": "6"}
        ext["suspendTimeoutMillis"] = str(2**62)
        peer.write(encode_command(peer.request(11, ext)))
        assert peer.call(7_777).code == 3


@pytest.mark.parametrize(
    "offset", [-1, -(2**63), 2**63 - 1], ids=["minus_1", "smallest", "largest"]
)
@pytest.mark.parametrize("queue_id", [-1, 99, 2**31 - 1])
def test_commit_of_an_odd_offset_or_queue(world: World, queue_id: int, offset: int) -> None:
    """Apache accepts all of these; commits without an existing queue or offset are not kept."""
    header = {"topic": "Bad", "consumerGroup": "Readers", "queueId": str(queue_id)}
    with world.staying_well(), world.peer() as peer:
        assert peer.call(15, {**header, "commitOffset": str(offset)}).code == 0
        response = peer.call(14, header)
        assert (response.code, response.ext_fields.get("offset")) in {(0, "0"), (22, None)}
        kept = orjson.loads(peer.call(43).body)["offsetTable"].get("Bad@Readers", {})
        assert str(queue_id) not in kept


def test_commit_of_a_negative_offset_undoes_nothing(world: World) -> None:
    header = {"topic": "Bad", "consumerGroup": "Readers", "queueId": "3"}
    with world.staying_well(), world.peer() as peer:
        for offset in ("7", "-5", str(-(2**63))):
            assert peer.call(15, {**header, "commitOffset": offset}).code == 0
        assert peer.call(14, header).ext_fields["offset"] == "7"


@pytest.mark.parametrize("queue_id", [-1, 99, 2**31 - 1, -(2**31)])
def test_offset_questions_about_a_queue_that_is_not_there(world: World, queue_id: int) -> None:
    with world.staying_well(), world.peer() as peer:
        for code in (29, 30, 31):
            response = peer.call(
                code, {"topic": "Bad", "queueId": str(queue_id), "timestamp": str(2**63 - 1)}
            )
            assert (response.code, response.ext_fields["offset"]) == (0, "0")


@pytest.mark.parametrize("offset", [-1, 7, 2**63 - 1, -(2**63)])
def test_look_at_an_offset_where_no_message_begins(world: World, offset: int) -> None:
    with world.staying_well(), world.peer() as peer:
        peer.send(b"x")
        assert peer.call(33, {"offset": str(offset)}).code == 1


@pytest.mark.parametrize("level", ["x", "2147483648x", "1.5", "2147483648", "9" * 5_000])
def test_delay_that_is_no_number(world: World, level: str) -> None:
    with world.staying_well(), world.peer() as peer:
        response = peer.send(b"x", i=f"UNIQ_KEY\1u\2DELAY\1{level}\2")
        assert response.code == 1
        assert "DELAY" in (response.remark or "")


@pytest.mark.parametrize(("level", "queue_id"), [("99", 17), ("2147483647", 17), ("-1", None)])
def test_delay_level_that_does_not_exist(world: World, level: str, queue_id: int | None) -> None:
    store = world.cluster.brokers[0].parts.store
    with world.staying_well(), world.peer() as peer:
        before = store.max_offset("SCHEDULE_TOPIC_XXXX", 17)
        assert peer.send(b"x", i=f"UNIQ_KEY\1u\2DELAY\1{level}\2").code == 0
        assert store.max_offset("SCHEDULE_TOPIC_XXXX", 17) - before == (queue_id is not None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMER_DELAY_SEC", "soon"),
        ("TIMER_DELAY_SEC", "259201"),
        ("TIMER_DELAY_MS", "1.5"),
        ("TIMER_DELAY_MS", "9" * 5_000),
        ("TIMER_DELIVER_MS", "9223372036854775807"),
        ("TIMER_DELIVER_MS", "9223372036854775808"),
    ],
)
def test_impossible_delivery_time_is_refused(world: World, name: str, value: str) -> None:
    with world.staying_well(), world.peer() as peer:
        response = peer.send(b"x", i=f"UNIQ_KEY\1u\2{name}\1{value}\2")
        assert response.code == 13
        assert "timer message illegal" in (response.remark or "")


@pytest.mark.parametrize("value", ["-9223372036854775808", "-1", "0", "1"])
def test_past_delivery_time_delivers_at_once(world: World, value: str) -> None:
    store = world.cluster.brokers[0].parts.store
    with world.staying_well(), world.peer() as peer:
        before = store.max_offset("Bad", 0)
        assert peer.send(b"x", i=f"UNIQ_KEY\1u\2TIMER_DELIVER_MS\1{value}\2").code == 0
        assert store.max_offset("Bad", 0) == before + 1


def test_timed_half_message(world: World) -> None:
    store = world.cluster.brokers[0].parts.store
    with world.staying_well(), world.peer() as peer:
        half = "UNIQ_KEY\1u\2TRAN_MSG\1true\2PGROUP\1P\2TIMER_DELAY_SEC\0015\2"
        before = store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        assert peer.send(b"x", f="4", i=half).code == 0
        assert store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == before + 1


def test_recall_that_means_nothing(world: World) -> None:
    ext = {"producerGroup": "P", "topic": "Bad"}
    later = str(world.cluster.brokers[0].parts.clock.time_ms() + 60_000)
    other = RecallHandle("Other", "broker-a", later, "id").encode()
    with world.staying_well(), world.peer() as peer:
        assert peer.call(370, {**ext, "recallHandle": "x"}).code == 16
        assert peer.call(25, body=b"recallMessageEnable=true\n").code == 0
        for handle in ("", "x", "*" * 9_000, other, RecallHandle("Bad", "x", "1", "i").encode()):
            assert peer.call(370, {**ext, "recallHandle": handle}).code == 604
        assert peer.call(370, {**ext, "topic": "None", "recallHandle": other}).code == 17
        assert peer.call(370, ext).code == 1


def test_many_messages_of_one_delivery_time(world: World) -> None:
    broker = world.cluster.brokers[0]
    moment = broker.parts.clock.time_ms() // 1_000 * 1_000 + 3_000
    with world.staying_well(), world.peer() as peer:
        before = broker.parts.store.max_offset("Bad", 3)
        for number in range(2_000):
            properties = f"UNIQ_KEY\1u{number}\2TIMER_DELIVER_MS\1{moment}\2"
            assert peer.send(b"%d" % number, e="3", i=properties).code == 0
        until = time.monotonic() + 60
        while broker.parts.store.max_offset("Bad", 3) < before + 2_000:
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"])
def test_batch_that_is_to_be_delayed(world: World, name: str) -> None:
    plain = encode_batch([BatchItem(0, b"x", b"")])
    later = encode_batch([BatchItem(0, b"x", f"{name}\x013\x02".encode())])
    batch = {**send_header(), "m": "true"}
    with world.staying_well(), world.peer() as peer:
        later_batch = {**batch, "i": f"UNIQ_KEY\1u\2{name}\0013\2"}
        assert peer.call(320, later_batch, plain).code == 13
        assert peer.call(320, batch, later).code == 13


def test_send_to_a_topic_of_the_system(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        assert peer.send(b"x", "SCHEDULE_TOPIC_XXXX").code == 16


def test_topic_with_odd_numbers(world: World) -> None:
    fine = {"topic": "Numbers", "defaultTopic": "", "readQueueNums": "4", "writeQueueNums": "4",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
            "order": "false"}  # fmt: skip
    odd = {"readQueueNums": ("-1", "1000000000"), "writeQueueNums": ("-1", "1000000000"),
           "perm": ("-1", "99"), "topicFilterType": ("PATH", "")}  # fmt: skip
    with world.staying_well(), world.peer() as peer:
        for field, texts in odd.items():
            for text in texts:
                response = peer.call(17, {**fine, field: text})
                assert response.code in {1, 29}, (field, text)
                assert response.remark
        assert peer.call(351, {"topic": "Numbers"}).code == 17


BATCHES = {
    "empty": b"",
    "garbage": b"\0\0\0\x05garbage",
    "length_0": struct.pack(">i", 0) * 8,
    "length_negative": struct.pack(">i", -1) + bytes(40),
    "length_too_long": struct.pack(">i", 2**31 - 1) + bytes(40),
    "cut": encode_batch([BatchItem(0, b"first", b""), BatchItem(0, b"second", b"")])[:-3],
    "body_length_lies": struct.pack(">iiiii", 40, 0, 0, 0, 1 << 30) + bytes(20),
    "properties_length_lies": struct.pack(">iiiiih", 24, 0, 0, 0, 0, 30_000),
    "nested": encode_batch([BatchItem(0, b"", b"")] * 2)[:10] * 3,
}


@pytest.mark.parametrize("name", BATCHES)
def test_batch_with_wrong_lengths(world: World, name: str) -> None:
    with world.staying_well(), world.peer() as peer:
        before = peer.bodies("Bad", 2)
        for code in (310, 320):
            response = peer.call(code, {**_batch_header(), "i": "UNIQ_KEY\1u\2"}, BATCHES[name])
            assert response.code == 13
        assert peer.bodies("Bad", 2) == before


def test_batch_inside_a_batch_is_only_a_body(world: World) -> None:
    """An entry is stored unchanged: messages inside a message are not searched."""
    inner = encode_batch([BatchItem(0, b"inner", b"")])
    with world.staying_well(), world.peer() as peer:
        before = len(peer.bodies("Bad", 2))
        body = encode_batch([BatchItem(0, inner, b"UNIQ_KEY\1u\2")])
        assert peer.call(320, _batch_header(), body).code == 0
        assert peer.bodies("Bad", 2)[before:] == [inner]


def test_batch_over_the_limit(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        many = encode_batch([BatchItem(0, bytes(100_000), b"")] * 50)
        assert peer.call(320, _batch_header(), many).code == 13


def test_batch_of_very_many_small_messages(world: World) -> None:
    """The response lists every id: a header of megabytes, which the client can read."""
    with world.staying_well(), world.peer() as peer:
        response = peer.call(
            320, {**_batch_header(), "e": "3"}, encode_batch([BatchItem(0, b"", b"")] * 150_000)
        )
        assert response.code == 0
        assert response.ext_fields["msgId"].count(",") == 149_999


def _batch_header() -> dict[str, str]:
    from tests.bad_input.kit import send_header  # noqa: PLC0415

    return {**send_header(queue_id=2), "m": "true"}
