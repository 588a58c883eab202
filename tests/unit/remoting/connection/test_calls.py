from rocketpy.errors import ConnectionLostError, RequestTimeoutError
from rocketpy.proto.wire.command import make_request
from rocketpy.remoting.connection.calls import Call, PendingCalls, PendingRequest
from tests.unit.remoting.fakes import FakeFuture, FakeLoop


def pending(loop: FakeLoop, timeout_ms: int) -> tuple[PendingRequest, FakeFuture]:
    future = FakeFuture()
    deadline_s = loop.time() + timeout_ms / 1000
    request = PendingRequest(make_request(11), future, timeout_ms, deadline_s)  # type: ignore[arg-type]
    return request, future


def test_response_is_matched_once() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "h:1")
    request, _ = pending(loop, 100)
    in_flight.add(7, request)
    assert len(in_flight) == 1
    assert in_flight.take(8) is None
    assert in_flight.take(7) is request
    assert in_flight.take(7) is None
    assert len(in_flight) == 0


def test_one_timer_serves_all_deadlines() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "h:1")
    for opaque in range(1000):
        in_flight.add(opaque, pending(loop, 3000)[0])
    assert loop.timers_made == 1


def test_calls_expire_in_order_of_deadlines() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "10.0.0.1:10911")
    late: list[Call] = []
    in_flight.on_timeout = late.append
    slow, slow_future = pending(loop, 500)
    fast, fast_future = pending(loop, 100)
    in_flight.add(1, slow)
    in_flight.add(2, fast)
    loop.advance(0.2)
    assert isinstance(fast_future.error, RequestTimeoutError)
    assert "no answer from 10.0.0.1:10911 to request 11 within 100 ms" in str(fast_future.error)
    assert late == [fast]
    assert not slow_future.done()
    loop.advance(0.4)
    assert isinstance(slow_future.error, RequestTimeoutError)
    assert late == [fast, slow]
    assert len(in_flight) == 0


def test_answered_call_does_not_expire() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "h:1")
    request, future = pending(loop, 100)
    in_flight.add(1, request)
    in_flight.take(1)
    loop.advance(1.0)
    assert not future.done()


def test_reused_opaque_has_new_deadline() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "h:1")
    in_flight.add(1, pending(loop, 100)[0])
    in_flight.take(1)
    second, future = pending(loop, 1000)
    in_flight.add(1, second)
    loop.advance(0.5)
    assert not future.done()
    loop.advance(0.6)
    assert isinstance(future.error, RequestTimeoutError)


def test_stale_deadlines_are_removed_in_bulk() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "h:1")
    for opaque in range(10_000):
        in_flight.add(opaque, pending(loop, 30_000)[0])
        in_flight.take(opaque)
    assert len(in_flight._deadlines) < 2000


def test_answers_may_be_read_first_after_a_stall_of_the_loop() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "h:1")
    for opaque in (1, 2):
        in_flight.add(opaque, pending(loop, 100)[0])
    silent, future = pending(loop, 100)
    in_flight.add(3, silent)

    loop.advance(5.0)  # the timer was due long ago, and no socket was read in between
    assert len(in_flight) == 3
    assert in_flight.take(1) is not None
    loop.advance(1.0)

    assert isinstance(future.error, RequestTimeoutError)
    assert len(in_flight) == 0


def test_done_future_is_not_changed() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "h:1")
    request, future = pending(loop, 100)
    in_flight.add(1, request)
    future.set_result("cancelled by its caller")
    loop.advance(0.15)
    assert future.value == "cancelled by its caller"
    assert len(in_flight) == 0


def test_lost_connection_fails_calls_and_stops_timer() -> None:
    loop = FakeLoop()
    in_flight = PendingCalls(loop, "h:1")
    request, future = pending(loop, 100)
    in_flight.add(1, request)
    in_flight.fail_all("closed by the peer")
    assert isinstance(future.error, ConnectionLostError)
    assert "closed by the peer" in str(future.error)
    loop.advance(1.0)
    assert len(in_flight) == 0
