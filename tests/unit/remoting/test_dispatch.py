import pytest

from rocketpy.proto.command import RemotingCommand, make_request, make_response
from rocketpy.proto.frame import CommandReader
from rocketpy.remoting.business import BusinessPool
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Answers, ProcessorTable, go_away, waited_too_long
from tests.unit.remoting.fakes import FakeLoop, FakeTransport


@pytest.fixture
def answers() -> Answers:
    channel = Channel(FakeLoop(), FakeTransport(), ("10.0.0.7", 1), hard_limit_bytes=1)  # type: ignore[arg-type]
    return Answers(channel)


def processor(channel: Channel, command: RemotingCommand) -> None:
    return None


def commands(answers: Answers) -> list[RemotingCommand]:
    return CommandReader().feed(b"".join(answers.frames))


def test_table_keeps_the_last_registration_of_a_code() -> None:
    table = ProcessorTable()
    pool = BusinessPool("p", 1, 10, 0)
    table.register([1, 2], processor, None)
    table.register(2, processor, pool)
    assert table.routes[1].pool is None
    assert table.routes[2].pool is pool


def test_pools_without_threads_run_inline_and_are_not_started() -> None:
    table = ProcessorTable()
    inline, threaded = BusinessPool("i", 0, 10, 0), BusinessPool("t", 1, 10, 0)
    table.register(1, processor, inline)
    table.register([2, 3], processor, threaded)
    table.set_default(processor, threaded)
    assert table.routes[1].pool is None
    assert table.pools() == [threaded]


def test_a_wrong_kind_of_answer_is_the_processors_error(answers: Answers) -> None:
    answers.process(lambda _, c: 5, make_request(10))  # type: ignore[arg-type, return-value]
    (answer,) = commands(answers)
    assert (answer.code, answer.remark) == (1, "TypeError: a processor returned int")


def test_sizes_add_up_over_all_kinds(answers: Answers) -> None:
    request = make_request(10)
    answers.add(request, b"12345")
    answers.add(request, [b"12", memoryview(b"345")])
    answers.add(request, make_response(request))
    assert answers.size_bytes == len(b"".join(answers.frames))


def test_a_coroutine_of_a_oneway_request_still_runs(answers: Answers) -> None:
    async def work() -> None:
        return None

    coroutine = work()
    oneway = make_request(10, oneway=True)
    answers.add(oneway, coroutine)
    assert answers.coroutines == [(oneway, coroutine)]
    coroutine.close()


def test_refusals_skip_oneway_requests(answers: Answers) -> None:
    answers.refuse([make_request(10), make_request(10, oneway=True)], waited_too_long(5, 6))
    (answer,) = commands(answers)
    assert answer.code == 2
    assert (answer.remark or "").endswith("period in queue: 5ms, size of queue: 6")


def test_go_away_mirrors_the_request() -> None:
    request = make_request(10)
    request.opaque = 77
    assert (go_away(request).code, go_away(request).opaque) == (1500, 77)
