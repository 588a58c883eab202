import pytest

from rocketpy.admin import Admin
from rocketpy.errors import ClientError, ConnectError, QueryNotFoundError, SystemFaultError
from rocketpy.proto.bodies.route import BrokerData, ClusterInfo
from rocketpy.proto.headers.pull import PullMessageResponseHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.record.message_id import encode_message_id
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.admin.fakes import BROKERS, FakeRemoting

A, B = BROKERS["broker-a"], BROKERS["broker-b"]


def record(offset: int, *, keys: str = "k", unique: str = "U", stored_ms: int = 0) -> bytes:
    return encode_message(
        MessageExt(
            topic="t",
            body=b"body",
            queue_offset=offset,
            phy_offset=offset * 100,
            born_host="1.1.1.1:1",
            store_host=A,
            store_timestamp_ms=stored_ms or offset,
            properties={"KEYS": keys, "UNIQ_KEY": unique},
        )
    )


def give_queue(remoting: FakeRemoting, address: str, low: int, high: int) -> None:
    """A queue with the offsets low..high-1, of which a pull gives three at most."""

    def at(offset: int) -> dict[str, str]:
        return PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=offset, min_offset=low, max_offset=high
        ).to_ext()

    def pull(request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        begin = int(fields["queueOffset"])
        if int(fields["queueId"]) != 0 or begin >= high:
            return make_response(request, 19, "", at(begin))
        if begin < low:
            return make_response(request, 21, "", at(low))
        end = min(high, begin + min(3, int(fields["maxMsgNums"])))
        body = b"".join(record(at) for at in range(begin, end))
        return make_response(request, 0, None, at(end), body)

    remoting.response_with(RequestCode.PULL_MESSAGE, pull, at=address)
    remoting.response(RequestCode.GET_MIN_OFFSET, at=address, ext={"offset": str(low)})
    remoting.response(RequestCode.GET_MAX_OFFSET, at=address, ext={"offset": str(high)})


async def test_message_by_offset_id_asks_the_broker_in_the_id(
    admin: Admin, remoting: FakeRemoting
) -> None:
    remoting.response(RequestCode.VIEW_MESSAGE_BY_ID, at=B, body=record(7))
    found = await admin.message_by_offset_id(encode_message_id(B, 700))
    assert found.queue_offset == 7
    address, request = remoting.asked[-1]
    assert (address, request.ext_fields) == (B, {"offset": "700"})
    remoting.response(RequestCode.VIEW_MESSAGE_BY_ID, 1, at=B, remark="can not find message")
    with pytest.raises(SystemFaultError):
        await admin.message_by_offset_id(encode_message_id(B, 701))


async def test_message_by_offset_id_asks_brokers_of_the_cluster_only(
    admin: Admin, remoting: FakeRemoting
) -> None:
    with pytest.raises(
        ClientError, match=r"names 6\.6\.6\.6:80, which is not a broker of this cluster"
    ):
        await admin.message_by_offset_id(encode_message_id("6.6.6.6:80", 1))
    assert "6.6.6.6:80" not in [address for address, _ in remoting.asked]
    with pytest.raises(ClientError, match="is not a message id"):
        await admin.message_by_offset_id("nonsense")


async def test_broker_known_by_name_is_found_by_its_address(
    admin: Admin, remoting: FakeRemoting
) -> None:
    data = BrokerData(cluster="c", broker_name="n", broker_addrs={0: "localhost:5", 1: "a..b:5"})
    info = ClusterInfo(broker_addr_table={"n": data}, cluster_addr_table={"c": {"n"}})
    remoting.response(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.encode())
    remoting.response(RequestCode.VIEW_MESSAGE_BY_ID, body=record(1))
    await admin.message_by_offset_id(encode_message_id("127.0.0.1:5", 1))
    assert remoting.asked[-1][0] == "localhost:5"
    with pytest.raises(ClientError, match="is not a broker"):
        await admin.message_by_offset_id(encode_message_id("127.0.0.1:6", 1))


async def test_producers_id_is_asked_of_every_broker(admin: Admin, remoting: FakeRemoting) -> None:
    code = RequestCode.QUERY_MESSAGE
    remoting.response(code, 22, at=A, remark="can not find message")
    remoting.response(code, at=B, body=record(1, unique="OTHER") + record(2))
    assert (await admin.message_by_unique_id("t", "U")).queue_offset == 2
    assert remoting.addresses(code) == [A, B]
    _, request = remoting.requests(code)[0]
    assert request.ext_fields["_UNIQUE_KEY_QUERY"] == "true"
    assert (request.ext_fields["topic"], request.ext_fields["key"]) == ("t", "U")
    with pytest.raises(QueryNotFoundError, match="no message with the id X"):
        await admin.message_by_unique_id("t", "X")


async def test_message_by_id_accepts_both_kinds(admin: Admin, remoting: FakeRemoting) -> None:
    remoting.response(RequestCode.QUERY_MESSAGE, 22, remark="can not find message")
    remoting.response(RequestCode.VIEW_MESSAGE_BY_ID, body=record(3))
    assert (await admin.message_by_id("t", encode_message_id(A, 3))).queue_offset == 3
    with pytest.raises(QueryNotFoundError):
        await admin.message_by_id("t", "nonsense")


async def test_messages_of_one_millisecond_come_as_they_were_stored(
    admin: Admin, remoting: FakeRemoting
) -> None:
    newest_first = b"".join(record(each, stored_ms=7) for each in (3, 2, 1))
    remoting.response(RequestCode.QUERY_MESSAGE, at=A, body=newest_first)
    remoting.response(RequestCode.QUERY_MESSAGE, 22, at=B)
    found = await admin.messages_by_key("t", "k")
    assert [each.queue_offset for each in found] == [1, 2, 3]


async def test_keys_are_exact_and_sorted_by_time(admin: Admin, remoting: FakeRemoting) -> None:
    remoting.response(RequestCode.QUERY_MESSAGE, at=A, body=record(1, keys="a k", stored_ms=9))
    body = record(2, keys="k", stored_ms=5) + record(3, keys="kk")
    remoting.response(RequestCode.QUERY_MESSAGE, at=B, body=body)
    found = await admin.messages_by_key("t", "k", begin_ms=1, end_ms=2, max_count=3)
    assert [each.queue_offset for each in found] == [2, 1]
    fields = remoting.requests(RequestCode.QUERY_MESSAGE)[0][1].ext_fields
    assert (fields["beginTimestamp"], fields["endTimestamp"], fields["maxNum"]) == ("1", "2", "4")
    assert not found.has_more


async def test_limit_of_a_query_is_of_all_brokers_together(
    admin: Admin, remoting: FakeRemoting
) -> None:
    body = b"".join(record(each) for each in (4, 2))
    remoting.response(RequestCode.QUERY_MESSAGE, at=A, body=body)
    remoting.response(RequestCode.QUERY_MESSAGE, at=B, body=record(3))
    found = await admin.messages_by_key("t", "k", max_count=2)
    assert [each.queue_offset for each in found] == [3, 4], "the newest, oldest first"
    assert found.has_more
    assert not (await admin.messages_by_key("t", "k", max_count=3)).has_more
    full = b"".join(record(each) for each in range(64))
    remoting.response(RequestCode.QUERY_MESSAGE, at=A, body=full)
    found = await admin.messages_by_key("t", "k", max_count=1000)
    assert (len(found), found.has_more) == (65, True), "a broker may have cut its answer"


async def test_message_that_a_silent_broker_may_have_is_not_called_absent(
    admin: Admin, remoting: FakeRemoting
) -> None:
    remoting.response(RequestCode.QUERY_MESSAGE, 22, at=A)
    remoting.down = {B}
    with pytest.raises(ConnectError):
        await admin.message_by_unique_id("t", "U")
    remoting.response(RequestCode.QUERY_MESSAGE, at=A, body=record(2))
    assert (await admin.message_by_unique_id("t", "U")).queue_offset == 2
    found = await admin.messages_by_key("t", "k")
    assert (len(found), list(found.failures)) == (1, ["broker-b"])


async def test_message_at_returns_the_message_of_an_offset(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_queue(remoting, A, 2, 9)
    assert (await admin.message_at(MessageQueue("t", "broker-a", 0), 5)).queue_offset == 5
    fields = remoting.asked[-1][1].ext_fields
    assert (fields["consumerGroup"], fields["sysFlag"]) == ("TOOLS_CONSUMER", "4")
    for offset in (1, 9):
        with pytest.raises(QueryNotFoundError, match=f"has no message at {offset}"):
            await admin.message_at(MessageQueue("t", "broker-a", 0), offset)
    with pytest.raises(ClientError, match="broker x does not serve"):
        await admin.message_at(MessageQueue("t", "x", 0), 5)


async def test_peeking_reads_from_either_end(admin: Admin, remoting: FakeRemoting) -> None:
    give_queue(remoting, A, 2, 12)
    give_queue(remoting, B, 0, 0)

    async def offsets(**options: int | bool | str) -> list[int]:
        found = await admin.peek("t", **options)  # type: ignore[arg-type]
        return [each.queue_offset for each in found]

    assert await offsets() == list(range(2, 12))
    assert await offsets(max_count=4) == [2, 3, 4, 5]
    assert await offsets(max_count=4, newest=True) == [8, 9, 10, 11]
    assert await offsets(offset=10) == [10, 11]
    assert await offsets(offset=0) == list(range(2, 12))  # too old: goes on where the queue begins
    assert await offsets(queue_id=1) == []
    assert await offsets(broker="broker-b") == []
    assert remoting.asked[-1][0] == B
