"""A user's function that ends the program in a background task: no traceback is logged."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Self, cast

import pytest

from rocketpy import App
from rocketpy.client.config import ProducerConfig
from rocketpy.client.consumer.dispatch.concurrent_service import Workers
from rocketpy.client.producer.middleware_producer import MiddlewareProducer
from rocketpy.client.producer.oneway import OnewaySends
from rocketpy.client.producer.transaction import CheckBackResponder
from rocketpy.client.sending.in_flight_window import UNLIMITED, InFlightWindow
from rocketpy.proto.headers.transaction import CheckTransactionStateRequestHeader
from rocketpy.proto.record.message import MessageExt
from rocketpy.runtime.clock import SystemClock


async def end(*_: object) -> NoReturn:
    sys.exit(5)


def end_at_once(*_: object) -> NoReturn:
    sys.exit(5)


class Routes:
    """Routes and transport of a producer: topics have one queue."""

    queues = ()

    async def publish_queues(self, topic: str) -> None: ...

    def route(self, topic: str) -> "Routes":
        return self

    def destination(self, queue: object) -> None: ...


async def worker() -> object:
    workers: Workers[int] = Workers(end, 2, end)
    workers.line.add_first(1)
    return workers


async def check_back() -> object:
    responder = CheckBackResponder(end, cast("Any", None), cast("Any", None), SystemClock())
    asked = CheckTransactionStateRequestHeader(tran_state_table_offset=1, commit_log_offset=1)
    responder.ask(asked, "a:1", MessageExt(topic="t", body=b"x"))
    return responder


async def one_way_send() -> object:
    instance = cast("Any", Routes())
    instance.routes = instance
    sends = OnewaySends(instance, InFlightWindow(9, UNLIMITED), "g", 3.0)
    sends.start(instance, "t", cast("Any", Sent()), {"selector": end_at_once, "order_key": "k"})
    return sends


async def one_way_send_through_middleware() -> object:
    producer = MiddlewareProducer.__new__(MiddlewareProducer)
    producer.config = ProducerConfig(middlewares=[end])
    producer._calls = InFlightWindow(9, UNLIMITED)
    producer._tasks = set()
    producer._transport = cast("Any", lambda: None)  # type: ignore[method-assign]
    producer.send_oneway("t", b"x")
    return producer


class Starting(App):
    async def __aenter__(self) -> Self:
        return await end()


async def start_of_an_app() -> None:
    await Starting("a:1").serve()


class Sent:
    body = b"x"


@pytest.mark.parametrize(
    "begin", [worker, check_back, one_way_send, one_way_send_through_middleware, start_of_an_app]
)
def test_exit_in_a_background_task_is_not_logged(
    begin: Callable[[], Awaitable[object]], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        begun = await begin()
        await asyncio.Event().wait()
        del begun

    with pytest.raises(SystemExit) as ended:
        asyncio.run(main())
    code = ended.value.code
    del ended
    gc.collect()
    assert code == 5
    assert not caplog.records
