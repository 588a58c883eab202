"""An app: its handlers get messages of a cluster, its hooks frame them, its end loses nothing."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import pytest

import rocketpy
from rocketpy import App, Headers, ReceivedMessage, TxState
from rocketpy.errors import ClosedError, ConfigError, ExpressionError, NoNameServerError
from rocketpy.testing.app import TestApp
from tests.unit.client.sim import NAMESRV, Cluster, pass_time, run_sim
from tests.unit.client.steps import until

SEND = 310


@dataclass
class Order:
    id: str
    amount: int = 1


def test_handlers_get_annotated_arguments_and_send_with_the_app_s_producer() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b'{"id":"o1","amount":5}')
        app = App(cluster.client())
        got: list[Any] = []

        @app.subscribe("t", group="billing", start="earliest")
        async def bill(
            order: Order, message: ReceivedMessage, headers: Headers, producer: rocketpy.Producer
        ) -> None:
            await producer.send("bills", Order(f"bill-{order.id}"), keys=[order.id])
            got.append((order, message.offset, headers))

        async with app:
            await until(lambda: got)
            assert got == [(Order("o1", 5), 0, {})]
            bodies = [request.body for request in cluster.of_code(SEND)]
            assert bodies == [b'{"id":"bill-o1","amount":1}']
        with pytest.raises(ClosedError):
            await app.client.producer().send("t", b"x")

    run_sim(main, queues=1)


def test_stop_finishes_running_handlers_between_the_hooks() -> None:
    async def main(cluster: Cluster) -> None:
        for n in range(5):
            cluster.put("t", b"%d" % n)
        app = App(cluster.client())
        events: list[str] = []

        @app.on_start
        async def begin() -> None:
            events.append("start")

        @app.on_start
        def begin_in_a_thread() -> None:
            events.append("start 2")

        @app.on_stop
        async def end() -> None:
            await app.producer.send("t", "the producer is still there")
            events.append("stop")

        @app.subscribe("t", group="c", start="earliest", concurrency=1)
        async def handle(body: int) -> None:
            events.append(f"{body} begins")
            await pass_time(2)
            events.append(f"{body} ends")

        asyncio.get_running_loop().call_later(3, app.stop)
        await app.serve()
        assert events == [
            "start", "start 2", "0 begins", "0 ends", "1 begins", "1 ends", "stop",
        ]  # fmt: skip
        assert max(at for key, at in cluster.offsets.items() if key[2] == "t") == 2

    run_sim(main, queues=1)


def test_failure_goes_to_on_error_of_the_subscription_or_the_app() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"{")
        app = App(cluster.client())
        told: list[tuple[str, str]] = []

        @app.on_error
        async def common(message: ReceivedMessage, error: Exception) -> None:
            told.append(("common", type(error).__name__))

        async def own(message: ReceivedMessage, error: Exception) -> None:
            told.append(("own", type(error).__name__))

        @app.subscribe("t", group="a", start="earliest")
        async def one(order: Order) -> None: ...

        @app.subscribe("t", group="b", start="earliest", on_error=own)
        def two(order: Order) -> None: ...

        async with app:
            await until(lambda: len(told) == 2)
        assert sorted(told) == [("common", "UnreadableBodyError"), ("own", "UnreadableBodyError")]

    run_sim(main, queues=1)


def test_start_that_fails_leaves_nothing_behind() -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client())
        ended: list[str] = []

        @app.on_start
        async def fail() -> None:
            raise KeyError("no")

        @app.on_stop
        async def end() -> None:
            ended.append("stop")

        with pytest.raises(KeyError):
            await app.serve()
        assert ended == ["stop"]
        with pytest.raises(ClosedError):
            await app.client.start()

    run_sim(main)


def test_consumer_that_fails_permanently_ends_the_app_with_its_error() -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client())

        @app.subscribe("t", group="c")
        async def handle(body: Any) -> None: ...

        @app.on_start
        async def soon() -> None:
            asyncio.get_running_loop().call_later(5, fail)

        def fail() -> None:
            app._consumers[0]._fail(RuntimeError("beyond repair"))

        with pytest.raises(RuntimeError, match="beyond repair"):
            await app.serve()

    run_sim(main)


def test_wrong_declarations_raise_in_the_decorator() -> None:
    app: Any = App("a:1")
    with pytest.raises(TypeError, match=r"subscribe\(\) has no option 'tags'"):
        app.subscribe("t", tags="a")
    with pytest.raises(ConfigError, match="the decorated function is the handler"):
        app.subscribe("t", handler=lambda message: None)
    with pytest.raises(TypeError, match="parameters a and b both want the body"):

        @app.subscribe("t")  # type: ignore[untyped-decorator]
        async def two_bodies(a: int, b: int) -> None: ...

    def undone() -> Iterator[None]:
        yield

    notes = {
        "handler": app.subscribe("t"),
        "transaction_checker": app.transaction_checker,
        "on_error": app.on_error,
        "middleware": app.middleware,
        "send_middleware": app.send_middleware,
        "on_start": app.on_start,
        "on_stop": app.on_stop,
    }
    for key, note in [*notes.items(), ("handler", app.responder("t"))]:
        with pytest.raises(ConfigError, match="has a yield") as caught:
            note(undone)
        assert caught.value.key == key
    assert not app.subscriptions
    with pytest.raises(ClosedError, match="not started"):
        _ = app.producer

    @app.transaction_checker  # type: ignore[untyped-decorator]
    async def check(message: ReceivedMessage) -> TxState:
        return TxState.COMMIT

    with pytest.raises(ConfigError, match="one transaction checker"):
        app.transaction_checker(check)


@pytest.mark.parametrize("kind", ["subscribe", "responder"])
@pytest.mark.parametrize("group", ["", "shop"])
def test_group_has_one_handler_and_the_second_is_refused_where_it_is_written(
    kind: str, group: str
) -> None:
    app = App("a:1", group="shop")

    @app.subscribe("orders")
    async def bill(order: Order) -> None: ...

    with pytest.raises(
        ConfigError, match=r"bill is the second handler of group shop.*another group"
    ) as caught:

        @getattr(app, kind)("payments", group=group)  # type: ignore[untyped-decorator]
        async def pay(order: Order) -> None: ...

    assert caught.value.key == "group"

    @app.subscribe("payments", group="payments")
    async def note(order: Order) -> None: ...

    assert [each.handler for each in app.subscriptions] == [bill, note]


def test_transaction_checker_of_the_app_answers_check_backs() -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client(), group="shop")
        asked: list[Order] = []
        got: list[Order] = []

        @app.transaction_checker
        async def check(message: ReceivedMessage) -> TxState:
            order = Order(**message.decode())
            asked.append(order)
            return TxState.COMMIT if order.id == "paid" else TxState.ROLLBACK

        @app.subscribe("t", group="billing", start="earliest")
        async def bill(order: Order) -> None:
            got.append(order)

        async with app:
            for name in ("paid", "given up"):
                async with app.producer.transaction("t", Order(name)) as tx:
                    tx.unknown()
            assert not got
            await until(lambda: got and len(asked) == 2)
            await pass_time(30)
        assert got == [Order("paid")]
        assert sorted(each.id for each in asked) == ["given up", "paid"]

    run_sim(main, properties={"transactionCheckInterval": "1000", "transactionTimeOut": "100"})


def test_app_that_is_started_before_its_servers_waits_for_them() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")
        cluster.down.add(NAMESRV)
        app = App(cluster.client())
        events: list[str] = []

        @app.on_start
        async def begin() -> None:
            events.append("start")

        @app.subscribe("t", group="c", start="earliest")
        async def handle(body: int) -> None:
            events.append(str(body))
            app.stop()

        asyncio.get_running_loop().call_later(40, cluster.down.clear)
        await app.serve()
        assert events == ["start", "1"]

    run_sim(main, queues=1)


@pytest.mark.parametrize("wait", ["5", -1, None, True])
def test_wait_for_cluster_with_an_invalid_time_is_refused(wait: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        App("nowhere:1", wait_for_cluster=wait)
    assert caught.value.key == "wait_for_cluster"


def test_app_without_servers_ends_with_an_error() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down.add(NAMESRV)
        with pytest.raises(NoNameServerError):
            await App(cluster.client(), wait_for_cluster=5).serve()

    run_sim(main)


def test_stop_ends_the_wait_for_servers() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down.add(NAMESRV)
        app = App(cluster.client())
        asyncio.get_running_loop().call_later(3, app.stop)
        began_ms = cluster.clock.monotonic_ms()
        await app.serve()
        assert cluster.clock.monotonic_ms() - began_ms < 5_000

    run_sim(main)


class Plain:
    def around(self, messages: object, handle: object) -> None:
        """Not a coroutine function."""


@pytest.mark.parametrize(
    ("decorator", "wrong"),
    [
        ("on_start", 5), ("on_start", lambda message: None), ("on_stop", lambda message: None),
        ("on_error", lambda message: None), ("on_error", "log"),
        ("transaction_checker", lambda: None), ("middleware", lambda messages: None),
        ("middleware", lambda messages, handle: None), ("send_middleware", 5),
        ("send_middleware", lambda sending, proceed: None), ("middleware", Plain().around),
    ],
)  # fmt: skip
def test_function_that_cannot_be_called_is_refused_at_its_decorator(
    decorator: str, wrong: Any
) -> None:
    with pytest.raises(ConfigError) as caught:
        getattr(App("a:1"), decorator)(wrong)
    assert caught.value.key == decorator


@pytest.mark.parametrize("wrong", [5, None, rocketpy.TypedSerializer])
def test_serializer_of_another_class_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="serializer"):
        App("a:1", serializer=wrong)


def test_stop_hooks_are_all_called_and_the_first_error_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client())
        called: list[str] = []

        @app.on_stop
        async def first() -> None:
            called.append("first")
            raise KeyError("first")

        @app.on_stop
        def second() -> None:
            called.append("second")
            raise ValueError("second")

        @app.on_stop
        async def third() -> None:
            called.append("third")
            await app.producer.send("t", b"x")

        with pytest.raises(KeyError, match="first"):
            async with app:
                pass
        assert called == ["first", "second", "third"]
        with pytest.raises(ClosedError):
            await app.client.producer().send("t", b"x")

    run_sim(main)
    assert "stop hook failed" in caplog.text


def test_app_that_runs_is_not_started_a_second_time() -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client())
        serving = asyncio.create_task(app.serve())
        await pass_time(5)
        for start in (app.serve, app.__aenter__, TestApp(app).__aenter__):
            with pytest.raises(ClosedError, match="runs already"):
                await start()
        assert not serving.done()
        app.stop()
        await serving

    run_sim(main)


def test_app_that_has_ended_is_started_again() -> None:
    apps: list[App] = []
    handled: list[str] = []

    async def main(cluster: Cluster) -> None:
        if not apps:
            app = App(cluster.client())

            @app.publisher("copies")
            @app.subscribe("t", group="c", start="earliest")
            async def handle(body: str) -> str:
                handled.append(body)
                return body

            apps.append(app)
        app = apps[0]
        if len(handled) > 1:  # the network of another loop
            app.client = cluster.client()
        for count in (1, 2):
            cluster.put("t", b"a body")
            before = len(handled)
            async with app:
                await until(lambda: len(handled) > before and cluster.of_code(SEND))  # noqa: B023
                assert app.not_ready() == []
            assert len(cluster.of_code(SEND)) >= count
            with pytest.raises(ClosedError, match="not started"):
                _ = app.producer

    for _ in range(2):
        run_sim(main, queues=1)


def test_app_whose_start_failed_is_started_again() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")
        app = App(cluster.client())
        got: list[int] = []
        is_failing = True

        @app.on_start
        async def begin() -> None:
            if is_failing:
                raise KeyError("no table")

        @app.subscribe("t", group="c", start="earliest")
        async def handle(body: int) -> None:
            got.append(body)
            app.stop()

        with pytest.raises(KeyError):
            await app.serve()
        is_failing = False
        await app.serve()
        assert got == [1]

    run_sim(main, queues=1)


async def test_test_apps_of_one_app_are_not_nested() -> None:
    app = App("a:1")
    is_failing = True

    @app.on_start
    async def begin() -> None:
        if is_failing:
            raise KeyError("no table")

    with pytest.raises(KeyError):
        await TestApp(app).__aenter__()
    is_failing = False
    for _ in range(2):
        async with TestApp(app):
            with pytest.raises(ClosedError, match="runs already"):
                await TestApp(app).__aenter__()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_stops_an_app_that_runs(number: signal.Signals) -> None:
    events: list[str] = []

    class Signalled(App):
        async def serve(self, **options: Any) -> None:
            assert not options
            os.kill(os.getpid(), number)
            for _ in range(100):  # the loop reads signals in a turn
                await asyncio.sleep(0)

        def stop(self) -> None:
            events.append("stop")

    # The default would end the tests; it may be ignored, where they run with nohup.
    before = signal.signal(signal.SIGHUP, lambda *_: events.append("left to others"))
    try:
        Signalled(NAMESRV).run()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert events == ["stop"]


class Started(App):
    """An app that starts without servers."""

    def __init__(self) -> None:
        super().__init__(NAMESRV)
        self.begun = threading.Event()

    async def __aenter__(self) -> Self:
        self._begin()
        self.begun.set()
        return self


def test_app_that_runs_on_another_thread_is_stopped_from_the_main_one() -> None:
    app = Started()
    running = threading.Thread(target=app.run, daemon=True)
    running.start()
    assert app.begun.wait(60)
    app.stop()
    running.join(60)
    assert not running.is_alive()


async def test_run_inside_of_an_event_loop_is_refused_with_the_way_to_go() -> None:
    with pytest.raises(RuntimeError, match=r"await app\.serve"):
        Started().run()


def test_handler_that_comes_after_the_start_is_refused() -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client())

        @app.on_start
        def add() -> None:
            app.subscribe("t", group="early")(lambda message: None)

        async with app:
            with pytest.raises(ClosedError, match="before its start"):
                app.subscribe("t", group="late")(lambda message: None)
        app.subscribe("t", group="next")(lambda message: None)

    run_sim(main)


@pytest.mark.parametrize("topic", ["a/b", " x", "é", "a" * 128, ["orders", "a.b"]])
def test_topic_that_cannot_exist_is_refused_where_the_handler_is_written(
    topic: str | list[str],
) -> None:
    app = rocketpy.App("127.0.0.1:9876", group="shop")
    for decorator in (app.subscribe, app.responder):
        with pytest.raises(ConfigError, match=r"^topic: '.*': The specified topic "):
            decorator(topic)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"group": "a b"}, ConfigError, "group: "),
        ({"sql": "amount >"}, ExpressionError, "found the end"),
        ({"filter": "paid", "sql": "amount > 1"}, ConfigError, "give tags or a condition"),
    ],
)
def test_filter_or_group_that_cannot_exist_is_refused_where_the_handler_is_written(
    options: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        rocketpy.App("127.0.0.1:9876", group="shop").subscribe("orders", **options)
