import pytest

from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import (
    ProcessorTable,
    Responses,
    go_away,
    waited_too_long,
)
from tests.unit.remoting.fakes import FakeLoop, FakeTransport, make_channel


@pytest.fixture
def responses() -> Responses:
    channel = make_channel(FakeLoop(), FakeTransport())
    return Responses(channel)


def processor(channel: Channel, command: RemotingCommand) -> None:
    return None


def commands(responses: Responses) -> list[RemotingCommand]:
    return CommandReader().feed(b"".join(responses.frames))


def test_processor_table_keeps_last_registration() -> None:
    table = ProcessorTable()
    pool = BusinessPool("p", 1, 10, 0)
    table.register([1, 2], processor, None)
    table.register(2, processor, pool)
    assert table.routes[1].pool is None
    assert table.routes[2].pool is pool


def test_pool_without_threads_runs_inline_and_is_not_started() -> None:
    table = ProcessorTable()
    inline, threaded = BusinessPool("i", 0, 10, 0), BusinessPool("t", 1, 10, 0)
    table.register(1, processor, inline)
    table.register([2, 3], processor, threaded)
    table.set_default(processor, threaded)
    assert table.routes[1].pool is None
    assert table.pools() == [threaded]


def test_response_of_wrong_type_becomes_processor_error(responses: Responses) -> None:
    responses.process(lambda _, c: 5, make_request(10))  # type: ignore[arg-type, return-value]
    (response,) = commands(responses)
    assert (response.code, response.remark) == (1, "TypeError: a processor returned int")


def test_responses_sum_sizes_of_all_types(responses: Responses) -> None:
    request = make_request(10)
    responses.add(request, b"12345")
    responses.add(request, [b"12", memoryview(b"345")])
    responses.add(request, make_response(request))
    assert responses.size_bytes == len(b"".join(responses.frames))


def test_coroutine_of_oneway_request_runs(responses: Responses) -> None:
    async def work() -> None:
        return None

    coroutine = work()
    oneway = make_request(10, oneway=True)
    responses.add(oneway, coroutine)
    assert responses.coroutines == [(oneway, coroutine)]
    coroutine.close()


def test_refusal_of_oneway_request_sends_nothing(responses: Responses) -> None:
    responses.refuse([make_request(10), make_request(10, oneway=True)], waited_too_long(5, 6))
    (response,) = commands(responses)
    assert response.code == 2
    assert (response.remark or "").endswith("period in queue: 5ms, size of queue: 6")


def test_go_away_mirrors_request() -> None:
    request = make_request(10)
    request.opaque = 77
    assert (go_away(request).code, go_away(request).opaque) == (1500, 77)
