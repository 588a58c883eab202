"""The blocking client: same names as the async one, on a thread that ends with it."""

import asyncio
import inspect
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import rocketpy
from rocketpy import sync
from rocketpy.client.client import Client as AsyncClient
from rocketpy.client.config import ClientConfig
from rocketpy.errors import ClientError, ClosedError, ConfigError, ConnectError
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.calls import RpcHook

WAIT_S = 10.0
FACES = [
    (sync.Producer, rocketpy.Producer),
    (sync.Consumer, rocketpy.Consumer),
    (sync.PullConsumer, rocketpy.PullConsumer),
    (sync.PopConsumer, rocketpy.PopConsumer),
    (sync.Client, rocketpy.Client),
]


class NoNetwork:
    """Network without any reachable host."""

    on_silence: Callable[[str], None] | None = None
    on_disconnect: Callable[[str], None] | None = None

    def __init__(self) -> None:
        self.hooks: list[RpcHook] = []
        self.threads: set[str] = set()
        self.is_closed = False

    async def invoke(self, address: str, _command: RemotingCommand, _ms: int) -> RemotingCommand:
        self.threads.add(threading.current_thread().name)
        raise ConnectError(f"cannot connect to {address}")

    def invoke_future(self, *args: Any) -> asyncio.Future[RemotingCommand]:
        return asyncio.ensure_future(self.invoke(*args))

    def start(self, address: str, call: Any) -> None:
        call.follow(asyncio.ensure_future(self.invoke(address, call.command, call.timeout_ms)))

    def abandon(self, address: str, reason: str) -> None:
        """Do nothing: no server of these tests is replaced."""

    async def invoke_oneway(self, *args: Any) -> None:
        await self.invoke(*args)

    def register(self, code: int, processor: Any) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


def client_on(network: NoNetwork) -> sync.Client:
    config = ClientConfig("10.0.0.1:9876", group="g", client_ip="10.0.9.1")
    return sync.Client(AsyncClient(config, make_remoting=lambda: network))


def own_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "rocketpy-sync"]


def test_client_thread_starts_and_ends_with_it() -> None:
    network = NoNetwork()
    client = client_on(network)
    before = len(own_threads())
    client.start()
    client.start()
    assert len(own_threads()) == before + 1
    client.close()
    assert len(own_threads()) == before
    assert network.is_closed
    client.close()


def test_client_before_start_and_after_close_raises() -> None:
    client = client_on(NoNetwork())
    for is_closed in (False, True):
        for use in (client.producer, client.pull_consumer, client.health):
            with pytest.raises(ClosedError, match="not started"):
                use()
        with pytest.raises(ClosedError):
            _ = client.client_id
        if not is_closed:
            with client:
                assert client.client_id.startswith("10.0.9.1@")
                assert client.health().consumers == {}
        client.close()
    with pytest.raises(ClosedError, match="again"):
        client.start()


def test_blocking_call_raises_the_error_of_the_send() -> None:
    network = NoNetwork()
    with client_on(network) as client:
        producer = client.producer(retries=0)
        with pytest.raises(ClientError):
            producer.send("t", b"x", timeout=0.1)
        with pytest.raises(TypeError, match="no option 'tags'"):
            producer.send("t", b"x", tags="a")  # type: ignore[call-arg]
    assert network.threads == {"rocketpy-sync"}


def test_send_nowait_returns_a_concurrent_future() -> None:
    with client_on(NoNetwork()) as client:
        future = client.producer(retries=0).send_nowait("t", b"x", timeout=0.1)
        assert isinstance(future, Future)
        with pytest.raises(ClientError):
            future.result(WAIT_S)


def test_client_close_closes_its_producers() -> None:
    with client_on(NoNetwork()) as client:
        producer = client.producer()
    with pytest.raises(ClosedError, match="connect"):
        producer.send("t", b"x")
    with pytest.raises(ClosedError):
        producer.send_nowait("t", b"x")


def test_forked_child_must_connect_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with client_on(NoNetwork()) as client:
        producer = client.producer()
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            for use in (producer.send, producer.send_nowait, producer.send_oneway):
                with pytest.raises(ClosedError, match="parent process"):
                    use("t", b"x")
            producer.close()
            client.close()  # there is nothing of ours to close
        assert client.client_id, "the parent's goes on"


class Hanging:
    """An object of the client whose close never ends."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    async def close(self) -> None:
        self.begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_interrupted_call_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Hanging()

    def interrupted(_self: Any, _timeout: float | None = None) -> Any:
        assert hanging.begun.wait(WAIT_S)
        raise KeyboardInterrupt

    with client_on(NoNetwork()) as client:
        face = sync.PullConsumer(client._thread, hanging)
        with monkeypatch.context() as patched:
            patched.setattr(Future, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                face.close()
        assert hanging.cancelled.wait(WAIT_S)


def test_with_block_starts_and_closes_a_consumer() -> None:
    with client_on(NoNetwork()) as client:
        with client.pull_consumer(group="p") as consumer:
            assert consumer.assignment == []
            assert consumer.poll(timeout=0) == []
        with pytest.raises(ClosedError):
            consumer.poll(timeout=0)


def test_client_that_cannot_start_leaves_no_thread() -> None:
    class Broken(NoNetwork):
        def register(self, code: int, processor: Any) -> None:
            raise ValueError("cannot start")

    before = len(own_threads())
    client = client_on(Broken())
    with pytest.raises(ValueError, match="cannot start"):
        client.start()
    assert len(own_threads()) == before


@pytest.mark.parametrize(("face", "wrapped"), FACES, ids=["1", "2", "3", "4", "5"])
def test_facade_methods_have_the_signature_of_the_async_ones(face: type, wrapped: type) -> None:
    names = [name for name in dir(face) if not name.startswith("_")]
    made = [name for name in names if hasattr(getattr(face, name), "__wrapped__")]
    assert len(made) >= 4
    for name in made:
        own, namesake = getattr(face, name), getattr(wrapped, name)
        assert own.__doc__, name
        assert (
            list(inspect.signature(own).parameters.values())[1:]
            == list(inspect.signature(namesake).parameters.values())[1:]
        ), name


def test_fork_child_gets_an_error_and_the_parent_still_sends() -> None:
    with client_on(NoNetwork()) as client:
        producer = client.producer(retries=0)
        child = multiprocessing.get_context("fork").Process(target=_in_a_child, args=(producer,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
            child.start()
        child.join(WAIT_S)
        assert child.exitcode == 0
        with pytest.raises(ClientError):
            producer.send("t", b"x", timeout=0.1)


def _in_a_child(producer: sync.Producer) -> None:
    for use in (producer.send, producer.send_nowait):
        with pytest.raises(ClosedError, match="parent process"):
            use("t", b"x")


def test_blocking_call_on_the_client_thread_raises() -> None:
    with client_on(NoNetwork()) as client:
        producer = client.producer()

        async def handler() -> None:
            producer.send("t", b"x")

        thread = client._thread
        with pytest.raises(ClientError, match="plain `def`"):
            thread.run(handler())

        async def closes() -> None:
            client.close()

        with pytest.raises(ClientError, match="plain `def`"):
            thread.run(closes())
        assert client.client_id, "it is still open"


def test_options_are_refused_at_the_call() -> None:
    with client_on(NoNetwork()) as client:
        producer: Any = client.producer()
        with pytest.raises(TypeError, match="did you mean tag"):
            producer.send_nowait("t", b"x", tags="a")
        with pytest.raises(ConfigError, match="handler"):
            client.consumer("t", handler=lambda: None)


def test_every_close_waits_for_the_one_close() -> None:
    gate = threading.Event()

    class SlowToClose(NoNetwork):
        async def close(self) -> None:
            await asyncio.to_thread(gate.wait, WAIT_S)
            await super().close()

    network = SlowToClose()
    client = client_on(network)
    client.start()
    ended: list[bool] = []

    def close() -> None:
        client.close()
        ended.append(network.is_closed)

    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert ended == []
    gate.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert ended == [True] * 3


def test_connect_describes_a_client_as_its_namesake_does() -> None:
    client = sync.connect("10.0.0.1:9876", group="shop")
    assert isinstance(client, sync.Client)
    with pytest.raises(TypeError, match="retires"):
        sync.connect("10.0.0.1:9876", retires=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(("face", "wrapped"), FACES, ids=["1", "2", "3", "4", "5"])
def test_facade_has_every_public_name_of_the_async_class(face: type, wrapped: type) -> None:
    public = {name for name in dir(wrapped) if not name.startswith("_")}
    brokers_ask = {"check_transaction"}
    assert public - brokers_ask <= {name for name in dir(face) if not name.startswith("_")}
