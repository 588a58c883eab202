"""Server connection with a fake transport: dispatch and pools."""

import dataclasses

import pytest

from rocketpy.errors import HeaderFieldError, RequestTimeoutError
from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.calls import PendingRequest
from rocketpy.remoting.connection.channel import Channel
from tests.unit.remoting.fakes import (
    LIMITS,
    FakeFuture,
    ManualClock,
    Rig,
    codes,
    echo,
    feed,
    on_other_thread,
    request,
)


def test_responses_of_one_read_share_one_write() -> None:
    rig = Rig().open()
    rig.owner.table.register(10, echo, None)
    feed(rig, *(request(10, n) for n in range(50)))
    assert len(rig.transport.writes) == 1
    assert codes(rig) == [(n, 0) for n in range(50)]


def test_processor_may_return_bytes_list_or_none() -> None:
    rig = Rig().open()
    frame = encode_command(make_response(request(1, 1), 0, None, None, b"body"))
    rig.owner.table.register(1, lambda _, c: frame, None)
    rig.owner.table.register(2, lambda _, c: [frame[:10], memoryview(frame)[10:]], None)
    rig.owner.table.register(3, lambda _, c: None, None)
    feed(rig, request(1, 1), request(2, 2), request(3, 3))
    assert [a.body for a in rig.transport.responses()] == [b"body", b"body"]


def test_oneway_requests_get_no_response() -> None:
    rig = Rig().open()
    seen: list[int] = []

    def remember(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        seen.append(command.opaque)
        return make_response(command)

    rig.owner.table.register(10, remember, None)
    oneway = request(10, 5)
    oneway.flag |= 2
    unknown = request(9999, 6)
    unknown.flag |= 2
    feed(rig, oneway, unknown)
    assert seen == [5]
    assert rig.transport.writes == []


def test_unknown_code_gets_response_of_apache() -> None:
    rig = Rig().open()
    feed(rig, request(9999, 4))
    (response,) = rig.transport.responses()
    assert (response.code, response.opaque) == (3, 4)
    assert response.remark == " request type 9999 not supported"


def test_default_processor_serves_unregistered_codes() -> None:
    rig = Rig().open()
    rig.owner.table.set_default(echo, None)
    feed(rig, request(9999, 4))
    assert codes(rig) == [(4, 0)]


@pytest.mark.parametrize(
    ("error", "remark"),
    [
        (ValueError("no good"), "ValueError: no good"),
        (
            HeaderFieldError("queueId", "is required"),
            "HeaderFieldError: header field queueId is required",
        ),
    ],
)
def test_processor_exception_becomes_code_1_and_connection_stays(
    error: Exception, remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig().open()

    def fail(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        raise error

    rig.owner.table.register(10, fail, None)
    rig.owner.table.register(11, echo, None)
    feed(rig, request(10, 1), request(11, 2))
    first, second = rig.transport.responses()
    assert (first.code, first.remark) == (1, remark)
    assert second.code == 0
    assert rig.connection.channel.is_open
    assert "request failed: peer=10.0.0.7:4321 code=10" in caplog.text


def test_coroutine_is_answered_when_done() -> None:
    rig = Rig().open()

    async def later(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        return make_response(command, 0, "later")

    async def never(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        raise RequestTimeoutError("too slow")

    rig.owner.table.register(10, later, None)
    rig.owner.table.register(11, never, None)
    feed(rig, request(10, 1), request(11, 2))
    assert rig.transport.writes == []
    assert rig.connection.in_progress.count == 2
    rig.owner.run_spawned()
    assert [(a.code, a.remark) for a in rig.transport.responses()] == [
        (0, "later"),
        (1, "RequestTimeoutError: too slow"),
    ]
    assert rig.connection.in_progress.count == 0


def test_pool_gets_one_batch_per_read_and_answers_in_one_write() -> None:
    rig = Rig(dataclasses.replace(LIMITS, max_in_flight=0)).open()
    pool = BusinessPool("p", 1, 1000, 200, clock=ManualClock())
    rig.owner.table.register([10, 11], echo, pool)
    feed(rig, *(request(10 + n % 2, n) for n in range(40)))
    assert rig.transport.writes == []
    assert rig.connection.in_progress.count == 40
    on_other_thread(pool.run_one)
    assert rig.loop.wake_ups == 1
    rig.loop.run()
    assert len(rig.transport.writes) == 1
    assert codes(rig) == [(n, 0) for n in range(40)]
    assert rig.connection.in_progress.count == 0
    assert not pool.run_one()


def test_full_pool_refuses_only_excess_requests() -> None:
    rig = Rig().open()
    pool = BusinessPool("p", 1, 2, 200, clock=ManualClock())
    rig.owner.table.register(10, echo, pool)
    feed(rig, *(request(10, n) for n in range(4)))
    assert codes(rig) == [(2, 2), (3, 2)]
    assert rig.transport.responses()[0].remark == (
        "[TOO_MANY_REQUESTS][OVERLOAD]system busy, start flow control for a while"
    )


def test_refused_request_of_rocketpy_peer_gets_530() -> None:
    rig = Rig().open()
    rig.owner.table.register(10, echo, BusinessPool("p", 1, 1, 200, clock=ManualClock()))
    feed(rig, request(10, 1, rocketpy="1"), request(10, 2))
    (response,) = rig.transport.responses()
    assert response.code == 530
    assert response.remark == "[OVERLOAD]system busy, start flow control for a while"


def test_pool_watch_refuses_expired_requests_within_10_ms() -> None:
    rig = Rig().open()
    clock = ManualClock()
    pool = BusinessPool("p", 1, 100, 200, clock=clock)
    rig.owner.table.register(10, echo, pool)
    feed(rig, request(10, 1), request(10, 2))
    clock.now += 100
    rig.loop.advance(0.010)
    assert rig.transport.writes == []
    clock.now += 150
    rig.loop.advance(0.010)
    assert codes(rig) == [(1, 2), (2, 2)]
    assert rig.transport.responses()[0].remark == (
        "[TOO_MANY_REQUESTS][TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        "period in queue: 250ms, size of queue: 0"
    )
    assert rig.connection.in_progress.count == 0


def test_msgpack_is_offered_once_to_rocketpy_peer() -> None:
    rig = Rig().open()
    rig.owner.table.register(1, lambda _, c: encode_command(make_response(c)), None)
    rig.owner.table.register(2, echo, None)
    feed(rig, request(1, 1, rocketpy="1"), request(2, 2), request(2, 3))
    assert rig.connection.channel.is_rocketpy
    assert [a.ext_fields for a in rig.transport.responses()] == [{}, {"rocketpy": "msgpack"}, {}]


def test_only_first_request_marks_peer_as_rocketpy() -> None:
    rig = Rig().open()
    rig.owner.table.register(2, echo, None)
    feed(rig, request(2, 1), request(2, 2, rocketpy="1"))
    assert not rig.connection.channel.is_rocketpy
    assert [a.ext_fields for a in rig.transport.responses()] == [{}, {}]


def test_malformed_frame_closes_after_valid_frames_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig().open()
    rig.owner.table.register(2, echo, None)
    rig.connection.data_received(
        encode_command(request(2, 1)) + b"\xff\xff\xff\xff\x00\x00\x00\x00"
    )
    assert codes(rig) == [(1, 0)]
    assert rig.transport.is_closed
    assert caplog.text.count("malformed frame, connection closed: peer=10.0.0.7:4321") == 1
    rig.connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    assert caplog.text.count("malformed frame") == 1


def test_partial_frame_waits_for_rest() -> None:
    rig = Rig().open()
    rig.owner.table.register(2, echo, None)
    frame = encode_command(request(2, 1))
    for index in range(len(frame)):
        rig.connection.data_received(frame[index : index + 1])
    assert codes(rig) == [(1, 0)]


def test_draining_connection_answers_go_away_to_supporting_peers() -> None:
    rig = Rig().open()
    rig.owner.table.register(2, echo, None)
    rig.owner.is_draining = True
    old = request(2, 1)
    old.version = 475
    oneway = request(2, 3)
    oneway.flag |= 2
    feed(rig, old, request(2, 2), oneway)
    assert sorted(codes(rig)) == [(1, 0), (2, 1500)]


# ---- calls to the peer


def test_responses_are_separate_from_requests() -> None:
    rig = Rig().open()
    rig.owner.table.register(2, echo, None)
    waiting = FakeFuture()
    pending = PendingRequest(make_request(39), waiting, 1000, 1.0)  # type: ignore[arg-type]
    rig.connection.channel.in_flight.add(1, pending)
    response = make_response(request(39, 1), 0, "here")
    feed(rig, request(2, 1), response)
    assert waiting.value.remark == "here"
    assert codes(rig) == [(1, 0)]
    feed(rig, response)  # late or repeated: no call waits
