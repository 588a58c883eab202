"""Pipelined sends of threads: all of them start, in order, within the limits."""

import asyncio
import dataclasses
import threading
from concurrent.futures import Future
from typing import Any

import pytest

import rocketpy
from rocketpy.errors import ClosedError, IllegalMessageError
from rocketpy.proto.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.test_sync import WAIT_S, NoNetwork, client_on

LIMIT = 8


class Storing(NoNetwork):
    """Stores what it is sent, when the gate is open; knows one topic of one queue."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.full = threading.Event()
        self.stored: list[bytes] = []
        self.most = 0
        self._open = 0

    async def invoke(self, address: str, command: RemotingCommand, _ms: int) -> RemotingCommand:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return make_response(command, 0, None, body=ROUTE)
        if command.code not in {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2}:
            return make_response(command, 0)
        self._open += 1
        self.most = max(self.most, self._open)
        if self._open == LIMIT:
            self.full.set()
        if not self.gate.is_set():
            await asyncio.to_thread(self.gate.wait, WAIT_S)
        self._open -= 1
        self.stored.append(command.body)
        fields = {"msgId": "7F", "queueId": "0", "queueOffset": str(len(self.stored))}
        return make_response(command, 0, None, fields)

    def abandon(self, address: str, reason: str) -> None:
        """Do nothing: no server of these tests is replaced."""

    async def invoke_oneway(self, *args: Any) -> None:
        await self.invoke(*args)


ROUTE = TopicRouteData(
    queue_datas=[QueueData("b", 1, 1, 6)], broker_datas=[BrokerData("c", "b", {0: "10.0.0.2:1"})]
).encode()


def test_sends_of_many_threads_are_stored_in_order_of_each_thread() -> None:
    network = Storing()
    with client_on(network) as client:
        producer = client.producer(max_in_flight=LIMIT)
        futures: list[Future[Any]] = []

        def send(name: int) -> None:
            for n in range(50):
                if n % 10 == 0:
                    producer.ready()
                futures.append(producer.send_nowait("t", b"%d-%d" % (name, n)))
                producer.send_oneway("t", b"%d-%d oneway" % (name, n))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        ids = {future.result(WAIT_S).msg_id for future in futures}
        producer.flush()
    assert len(ids) == 200
    assert network.most <= LIMIT
    assert len(network.stored) == 400
    for name in range(4):
        own = [body for body in network.stored if body.startswith(b"%d-" % name)]
        sent = [body for body in own if b"oneway" not in body]
        assert sent == [b"%d-%d" % (name, n) for n in range(50)]


def test_send_nowait_waits_at_the_in_flight_limit() -> None:
    network = Storing()
    network.gate.clear()
    with client_on(network) as client:
        producer = client.producer(max_in_flight=LIMIT)
        begun: list[int] = []

        def send() -> None:
            for n in range(3 * LIMIT):
                producer.send_nowait("t", b"x")
                begun.append(n)

        thread = threading.Thread(target=send)
        thread.start()
        assert network.full.wait(WAIT_S)
        assert len(begun) <= LIMIT
        network.gate.set()
        thread.join(WAIT_S)
        producer.flush()
        assert len(begun) == len(network.stored) == 3 * LIMIT
        assert network.most <= LIMIT


def test_thread_waiting_for_space_gets_closed_error() -> None:
    network = Storing()
    network.gate.clear()
    client = client_on(network)
    client.start()
    producer = client.producer(max_in_flight=1)
    first = producer.send_nowait("t", b"x", timeout=WAIT_S)
    errors: list[Exception] = []

    def send() -> None:
        try:
            producer.send_nowait("t", b"y")
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    closing = threading.Thread(target=client.close)
    closing.start()
    thread.join(WAIT_S)
    assert len(errors) == 1
    network.gate.set()
    closing.join(WAIT_S)
    assert first.done()


def test_queued_sends_wake_the_loop_once_and_close_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Storing()
    with client_on(network) as client:
        producer = client.producer()
        producer.send("t", b"the route is known")
        thread = client._thread
        wakes: list[Any] = []
        held, go_on = threading.Event(), threading.Event()
        call_soon = thread.call_soon

        def counted(function: Any) -> None:
            wakes.append(function)
            call_soon(function)

        def hold() -> None:
            held.set()
            assert go_on.wait(WAIT_S)

        monkeypatch.setattr(thread, "call_soon", counted)
        call_soon(hold)  # the loop is busy
        assert held.wait(WAIT_S)
        futures = [producer.send_nowait("t", b"%d" % n) for n in range(100)]
        go_on.set()
    assert len(wakes) == 1
    assert all(future.done() and future.result().msg_id for future in futures)


def test_illegal_message_raises_at_once_and_takes_no_space() -> None:
    with client_on(Storing()) as client:
        producer = client.producer(max_in_flight=1)
        for start in (producer.send_nowait, producer.send_oneway):
            with pytest.raises(IllegalMessageError, match="empty"):
                start("t", b"")
        assert producer.in_flight == 0
        assert producer.send_nowait("t", b"x").result(WAIT_S).offset == 1


def test_send_nowait_with_middlewares_returns_a_future() -> None:
    async def louder(sending: rocketpy.Sending, proceed: rocketpy.Proceed) -> Any:
        return await proceed(dataclasses.replace(sending, body=sending.body.upper()))

    network = Storing()
    with client_on(network) as client:
        producer = client.producer(middlewares=[louder])
        producer.ready()
        assert producer.send_nowait("t", b"x").result(WAIT_S).offset == 1
        producer.send_oneway("t", b"y")
        producer.flush()
    assert network.stored == [b"X", b"Y"]
